//! Prints the custom resource definitions, or writes one file per definition into the directory given as argument.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1);
    for crd in quorate_api::crds::all() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let text = serde_saphyr::to_string(&crd)?;
        match &directory {
            Some(directory) => std::fs::write(std::path::Path::new(directory).join(format!("{name}.yaml")), text)?,
            None => writeln!(std::io::stdout(), "---\n{}", text.trim_end())?,
        }
    }
    Ok(())
}
