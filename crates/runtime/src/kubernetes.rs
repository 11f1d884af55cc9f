//! How our processes talk to the API server.

use http::{HeaderValue, header::USER_AGENT};
use kube::Config;
use kube::config::InferConfigError;

/// As the environment says.
pub async fn config(user_agent: &'static str) -> Result<Config, InferConfigError> {
    Ok(of_ours(Config::infer().await?, user_agent))
}

/// Nothing is repeated behind our back: the client would do so for minutes, and a write that is taken then does what was
/// right minutes ago. Whoever is refused judges that now, and decides anew.
fn of_ours(mut config: Config, user_agent: &'static str) -> Config {
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    config
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use http::Request;
    use kube::Client;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// An API server that is not ready the first time and then is. Counts what it is asked.
    async fn unready_once(listener: TcpListener, asked: Arc<AtomicUsize>) {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 4096]).await;
            let status = if asked.fetch_add(1, Relaxed) == 0 { "503 Service Unavailable" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    }

    #[tokio::test]
    async fn what_the_api_server_does_not_take_now_is_not_sent_again_later() {
        let _ = crate::tls::install_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        tokio::spawn(unready_once(listener, asked.clone()));
        let client = Client::try_from(of_ours(Config::new(url), "test")).unwrap();
        let answer = client.request_text(Request::post("/").body(Vec::new()).unwrap()).await;
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(asked.load(Relaxed), 1);
    }
}
