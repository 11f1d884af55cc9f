//! Why nobody answers: a way that is closed, and a quorum that is not there.

use quorate_core::read::Endpoint;
use quorate_operator::error::Error;
use quorate_operator::etcd::{Why, list_members};
use tokio::net::{TcpSocket, TcpStream};

use crate::etcd_process::VERSIONS;
use crate::members::{Certificates, Member, endpoint, hosts, requests, target};
use crate::network;
use crate::peers::{operator, quorum};

async fn why(members: &[Endpoint], certificates: &Certificates) -> Vec<Why> {
    match list_members(&target(members), Some(&operator(certificates)), true).await {
        Err(Error::NoMemberAnswered { failures }) => failures.into_iter().map(|failure| failure.why).collect(),
        other => panic!("{other:?}"),
    }
}

/// An address on which nothing comes back: whoever listens there has no room for another connection, so the kernel drops
/// what would begin one, as a network policy does.
async fn silent(address: &str) -> (TcpSocketQueue, Endpoint) {
    let socket = TcpSocket::new_v4().unwrap();
    let place = format!("{address}:2379").parse().unwrap();
    socket.bind(place).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(std::time::Duration::from_millis(500), TcpStream::connect(place)).await
    {
        waiting.push(stream.unwrap());
    }
    (TcpSocketQueue { _listener: listener, _waiting: waiting }, Endpoint { address: address.to_owned(), ..endpoint(0) })
}

/// Kept for as long as nothing is to come through.
struct TcpSocketQueue {
    _listener: tokio::net::TcpListener,
    _waiting: Vec<TcpStream>,
}

#[tokio::test]
async fn a_closed_way_is_told_from_a_quorum_that_is_not_there_and_from_a_member_that_is_not_believed() {
    let test = "reach::a_closed_way_is_told_from_a_quorum_that_is_not_there_and_from_a_member_that_is_not_believed";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    let (_queue, dropped) = silent("10.0.2.1").await;
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let closed = [endpoint(1), dropped.clone()];
        assert_eq!(why(&closed, &certificates).await, [Why::OutOfReach, Why::OutOfReach], "{version}");

        let both = [0, 1].map(|ordinal| Member::start(version, dir.path(), &certificates, ordinal, 2));
        quorum(version, &both, 0, &operator(&certificates)).await;
        let [first, second] = both;
        drop(second);
        assert_eq!(why(&[endpoint(0)], &certificates).await, [Why::Other], "{version}: it is reached, and alone");

        let other_dir = tempfile::tempdir().unwrap();
        let others = Certificates::issue(other_dir.path(), requests());
        assert_eq!(why(&[endpoint(0)], &others).await, [Why::Other], "{version}: another authority");
        drop(first);
    }
}
