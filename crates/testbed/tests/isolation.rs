//! Nothing leaves a bed, and beds do not see each other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with},
};
use support::{TestBed, eventually, restricted_pod};

/// An address reserved for documentation: there is nobody.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
/// A loopback address that nobody else uses, to prove that the listener hears.
const CONTROL: Ipv4Addr = Ipv4Addr::new(127, 77, 77, 77);

/// Hears every frame on every interface of the host and counts those for two addresses.
struct Listener {
    stop: Arc<AtomicBool>,
    counting: JoinHandle<(usize, usize)>,
}

impl Listener {
    fn start() -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::ALL)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let counting = thread::spawn(move || {
            let (mut outside, mut control) = (0, 0);
            let mut frame = vec![0u8; 65536];
            loop {
                match recv(&socket, &mut frame[..], RecvFlags::empty()) {
                    // 14 bytes of Ethernet, then IPv4 with the destination at its byte 16.
                    Ok((length, _)) if length >= 34 && frame[12..14] == [0x08, 0x00] => {
                        outside += usize::from(frame[30..34] == OUTSIDE.octets());
                        control += usize::from(frame[30..34] == CONTROL.octets());
                    }
                    Err(Errno::AGAIN) if stopped.load(Ordering::SeqCst) => return (outside, control),
                    Err(Errno::AGAIN) => thread::yield_now(),
                    other => drop(other.unwrap()),
                }
            }
        });
        Listener { stop, counting }
    }

    fn heard(self) -> (usize, usize) {
        self.stop.store(true, Ordering::SeqCst);
        self.counting.join().unwrap()
    }
}

fn packets_counted(bed: &TestBed, chain: &str) -> u64 {
    let listed = bed.run(&["exec", "--", "nft", "list", "chain", "inet", "watched", chain]);
    let counted = listed.split("packets ").nth(1).unwrap();
    counted.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_packet_to_an_outside_address_reaches_the_beds_edge_and_no_interface_of_the_host() {
    let bed = TestBed::own("no-way-out");
    bed.up(&["--nodes", "1"]);
    let links = bed.run(&["exec", "--", "ip", "-brief", "link"]);
    let mut names: Vec<_> = links.lines().map(|line| line.split(['@', ' ']).next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["bridge", "lo", "node1"], "the bed has an interface that could lead out");

    let rules = format!(
        "add table inet watched; \
         add chain inet watched arrived {{ type filter hook prerouting priority 0; }}; \
         add chain inet watched left {{ type filter hook postrouting priority 0; }}; \
         add rule inet watched arrived ip daddr {OUTSIDE} counter; \
         add rule inet watched left ip daddr {OUTSIDE} counter"
    );
    bed.run(&["exec", "--", "nft", &rules]);
    let namespace = bed.namespace("no-way-out");
    namespace.apply(&restricted_pod("sender", "exec sleep 3600", "", ""));
    namespace.wait_ready("pod/sender");

    let listener = Listener::start();
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.send_to(b"heard", (CONTROL, 9)).unwrap();
    for _ in 0..5 {
        // Both fail or time out, as they should; what counts is where the packets went.
        namespace.sh("sender", &format!("timeout 1 wget -qO- http://{OUTSIDE}/"));
        bed.testbed(&["exec", "--node", "1", "--", "bash", "-c", &format!("echo x > /dev/udp/{OUTSIDE}/9")]);
    }
    let (outside, control) = listener.heard();
    assert!(control > 0, "the listener heard nothing, not even its own packet");
    assert!(packets_counted(&bed, "arrived") > 0, "no packet reached the bed's edge, so nothing was shown");
    assert_eq!(packets_counted(&bed, "left"), 0, "the bed's edge passed packets on");
    assert_eq!(outside, 0, "packets reached the host's interfaces");
}

#[test]
fn two_beds_at_once_do_not_see_each_other() {
    let one = TestBed::own("one");
    let two = TestBed::own("two");
    one.up(&["--nodes", "1"]);
    two.up(&["--nodes", "1"]);
    // The same address in both beds: whoever answers says in which bed it is.
    let serve = |bed: &TestBed| {
        let namespace = bed.namespace("apart");
        let script = format!("echo {} > /www/name; exec httpd -f -p 8080 -h /www", bed.name);
        let volumes = "volumes: [{name: www, emptyDir: {}}]";
        namespace.apply(&restricted_pod("server", &script, volumes, "volumeMounts: [{name: www, mountPath: /www}]"));
        namespace.wait_ready("pod/server");
        let address = namespace.get(&["pod", "server"])["status"]["podIP"].as_str().unwrap().to_owned();
        namespace.apply(&restricted_pod("client", "exec sleep 3600", "", ""));
        namespace.wait_ready("pod/client");
        (namespace, address)
    };
    let ((in_one, address_in_one), (in_two, address_in_two)) = (serve(&one), serve(&two));
    assert_eq!(address_in_one, address_in_two, "without a shared address nothing is shown");
    let fetch = format!("timeout 2 wget -qO- http://{address_in_one}:8080/name");
    for (namespace, name) in [(&in_one, "one"), (&in_two, "two")] {
        assert_eq!(eventually("the neighbour answers", || namespace.sh("client", &fetch)), name);
    }
    in_one.kubectl(&["create", "configmap", "only-in-one"]);
    assert!(in_two.try_kubectl(&["get", "configmap", "only-in-one"]).is_none(), "an object of another bed is visible");
    let uid = |bed: &TestBed| bed.get(&["node", "node1"])["metadata"]["uid"].to_string();
    assert_ne!(uid(&one), uid(&two));

    one.run(&["down"]);
    assert!(two.node_is_ready("node1"), "removing one bed disturbed the other");
    assert_eq!(in_two.sh("client", &fetch).as_deref(), Some("two"));
}
