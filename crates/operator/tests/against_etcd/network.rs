//! A network that a test has for itself: members have the names that Kubernetes would give them, and every connection
//! comes from an address whose reverse lookup gives nothing, or what the test says.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Says that we are inside.
const VARIABLE: &str = "QUORATE_TEST_NETWORK";
/// Where every connection comes from. No certificate names it.
pub(crate) const CALLER: &str = "10.0.0.1";

/// Whether the test goes on here. The first call runs the test again, in its own network, and returns false.
pub(crate) fn is_inside(test: &str, hosts: &[(String, String)]) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        let again = std::env::current_exe().unwrap();
        run(Command::new("unshare").args(["--net", "--mount"]).arg(again).args(["--exact", test]).env(VARIABLE, "1"));
        return false;
    }
    run(Command::new("ip").args(["link", "set", "lo", "up"]));
    run(Command::new("ip").args(["address", "add", &format!("{CALLER}/8"), "dev", "lo"]));
    let dir = tempfile::tempdir().unwrap();
    let lines = hosts.iter().map(|(address, name)| format!("{address} {name}"));
    mount(dir.path(), "/etc/hosts", &lines.chain(["127.0.0.1 localhost\n".to_owned()]).collect::<Vec<_>>().join("\n"));
    // Nobody is there: whatever is not in the list above cannot be found.
    mount(dir.path(), "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
    true
}

/// The file stays as long as it is mounted, also without a name.
fn mount(dir: &Path, over: &str, content: &str) {
    let file = dir.join("file");
    fs::write(&file, content).unwrap();
    run(Command::new("mount").arg("--bind").arg(&file).arg(over));
    fs::remove_file(&file).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {said}");
}
