//! The host's door to the API server: accepts on the host's loopback, dials inside the bed.

use std::{net::TcpListener, time::Duration};

use tokio::net::TcpStream;

use crate::{
    bed::API_PORT,
    error::{Result, While},
    ip::IpFamilies,
};

/// A socket stays in the namespace it was made in, so this listener still hears the host although the process has
/// moved into the bed, and the connections it makes are the bed's.
pub(super) fn run(listener: TcpListener, families: IpFamilies) -> Result<impl Future<Output = ()>> {
    let prepare = || {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    };
    let listener = prepare().while_(|| "taking over the host's listener".to_owned())?;
    Ok(async move {
        loop {
            let Ok((mut outside, _)) = listener.accept().await else {
                // Out of descriptors or a caller that went away: both pass.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            tokio::spawn(async move {
                if let Ok(mut inside) = TcpStream::connect(families.primary().at_control_plane(API_PORT)).await {
                    let _ = outside.set_nodelay(true);
                    let _ = inside.set_nodelay(true);
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    })
}
