//! Prints the manifest that installs the operator, or writes it to the file given as argument.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = quorate_operator::manifest::install();
    match std::env::args_os().nth(1) {
        Some(path) => std::fs::write(path, text)?,
        None => std::io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}
