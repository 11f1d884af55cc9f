//! What the agent writes for etcd means the same to every minor version.

use crate::pod::{Pod, eventually};

#[test]
fn etcd_looks_for_differences_between_members_when_it_starts_and_in_what_was_compacted() {
    for minor in ["3.5", "3.6", "3.7"] {
        let mut pod = Pod::running(minor);
        pod.kill_etcd();
        pod.start_launcher();
        eventually("it is running again", || pod.api.lease().boot_count == Some(2));
        let log = pod.etcd_log();
        assert!(log.contains("starting initial corruption check"), "{minor}");
        let compacted = if minor == "3.5" { "\"compact-check-time-enabled\":true" } else { "CompactHashCheck=true" };
        assert!(log.contains(compacted), "{minor}");
        assert!(!log.contains("deprecated"), "{minor} is told nothing that it gives up");
    }
}

#[test]
fn etcd_listens_on_both_families_where_there_are_both() {
    let pod = Pod::running("3.6");
    let both = std::net::TcpListener::bind("[::1]:0").is_ok();
    let port = u16::try_from(pod.settings.client_port).unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert_eq!(std::net::TcpStream::connect(("::1", port)).is_ok(), both);
    let probes = u16::try_from(pod.settings.agent_port).unwrap();
    assert_eq!(std::net::TcpStream::connect(("::1", probes)).is_ok(), both);
}
