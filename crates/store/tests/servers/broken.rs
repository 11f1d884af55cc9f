//! Servers that misbehave in one way each, and remember what they were asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is sent back, whatever was asked; a number of bytes that never comes is a hang.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// These answers, and the last one from then on.
    Answers(Vec<String>),
    /// Never a word.
    Silence,
    /// Uploads can be begun, and nothing of them is ever acknowledged.
    TakesNoParts,
}

#[derive(Clone)]
pub(crate) struct Broken {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Broken {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let server = Self { url, requests };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (server, behaviour) = (accepting.clone(), behaviour.clone());
                tokio::spawn(async move { server.serve(connection, behaviour).await });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The first line and headers of each request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn serve(&self, mut connection: TcpStream, behaviour: Behaviour) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match connection.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(head.clone());
            requests.len() - 1
        };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<u64>().ok());
        let answer = match &behaviour {
            Behaviour::Answers(answers) => answers.get(number).or(answers.last()).cloned(),
            Behaviour::TakesNoParts if head.contains("?uploads") => Some(answer(
                200,
                "",
                "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>",
            )),
            Behaviour::Silence | Behaviour::TakesNoParts => None,
        };
        tokio::io::copy(&mut (&mut connection).take(length.unwrap_or_default()), &mut tokio::io::sink()).await.ok();
        match answer {
            Some(answer) => {
                connection.write_all(answer.as_bytes()).await.ok();
            }
            // Until the client has had enough.
            None => drop(connection.read_u8().await),
        }
    }
}

/// An answer as it goes over the wire; every one ends its connection.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}
