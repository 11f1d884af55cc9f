//! Ports.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::net::TcpListener;

/// On every address of both families; where there is no IPv6, of one.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}
