//! The connection to one member, and the one place where calls are made.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{Stream, once};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::error::ClientError;

/// A range over a whole large keyspace, or one revision that deletes a million keys, is far above gRPC's usual 4 MiB.
const LARGEST_MESSAGE: usize = 1 << 30;

/// Certificates in PEM.
#[derive(Clone)]
pub struct Tls {
    pub ca: Vec<u8>,
    /// Certificate and key, for mutual TLS.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name to expect in the server's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The private key must not end up in a log.
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// `http://host:port` or `https://host:port`.
    pub endpoint: String,
    pub tls: Option<Tls>,
    pub connect_timeout: Duration,
    /// For calls that answer from memory.
    pub call_timeout: Duration,
    /// For calls that work through the whole database: defragmentation, compaction, hashes.
    pub long_call_timeout: Duration,
    /// The longest silence on a stream that owes us data.
    pub stall_timeout: Duration,
    /// How often to ask an otherwise silent connection for a sign of life, and how long to wait for it. etcd drops
    /// clients that ask more often than every five seconds.
    pub keep_alive: Duration,
}

impl Options {
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: None,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            long_call_timeout: Duration::from_mins(5),
            stall_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
        }
    }

    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }
}

/// One member. Clones share the connection, which is made at the first call and again after a failure.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    options: Arc<Options>,
    token: Option<MetadataValue<Ascii>>,
    requires_leader: bool,
}

impl Client {
    /// Must be called within a tokio runtime. Does not wait for the member.
    pub fn new(options: Options) -> Result<Self, ClientError> {
        let refuse = |source| ClientError::Endpoint { endpoint: options.endpoint.clone(), source };
        let mut endpoint = Endpoint::from_shared(options.endpoint.clone())
            .map_err(refuse)?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(options.keep_alive)
            .keep_alive_timeout(options.keep_alive)
            // etcd takes a ping without a call in progress for abuse.
            .keep_alive_while_idle(false);
        if let Some(tls) = &options.tls {
            endpoint = endpoint.tls_config(tls_config(tls)).map_err(refuse)?;
        }
        let channel = endpoint.connect_lazy();
        Ok(Self { channel, options: Arc::new(options), token: None, requires_leader: false })
    }

    /// The same connection, speaking for the user whom `authenticate` gave this token.
    pub fn with_token(&self, token: &str) -> Result<Self, ClientError> {
        let token = token.parse().map_err(|_| ClientError::Token)?;
        Ok(Self { token: Some(token), ..self.clone() })
    }

    /// The same connection, to a member that refuses with [`Code::Unavailable`](super::Code) while it knows no leader, and
    /// before it looks at the caller's rights.
    #[must_use]
    pub fn requiring_leader(&self) -> Self {
        Self { requires_leader: true, ..self.clone() }
    }

    pub fn endpoint(&self) -> &str {
        &self.options.endpoint
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        if self.requires_leader {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        request
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(super) async fn call<Q, R>(&self, path: &'static str, message: Q) -> Result<R, ClientError>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        self.call_within(self.options.call_timeout, path, message).await
    }

    pub(super) async fn long_call<Q, R>(&self, path: &'static str, message: Q) -> Result<R, ClientError>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        self.call_within(self.options.long_call_timeout, path, message).await
    }

    async fn call_within<Q, R>(&self, limit: Duration, path: &'static str, message: Q) -> Result<R, ClientError>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        let mut request = self.request(message);
        request.set_timeout(limit);
        let mut grpc = self.grpc();
        let answer = timeout(limit, async {
            grpc.ready().await.map_err(|source| self.unreachable(path, source))?;
            let codec = ProstCodec::<Q, R>::default();
            grpc.unary(request, PathAndQuery::from_static(path), codec)
                .await
                .map_err(|status| self.refused(path, status))
        });
        match answer.await {
            // The transport keeps the same limit and may notice first.
            Err(_) | Ok(Err(ClientError::Deadline { .. })) => Err(self.deadline(path, limit)),
            Ok(answer) => Ok(answer?.into_inner()),
        }
    }

    /// One request, a stream of answers.
    pub(super) async fn server_stream<Q, R>(&self, path: &'static str, message: Q) -> Result<Streaming<R>, ClientError>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        self.both_ways(path, once(message)).await
    }

    /// Streams in both directions.
    pub(super) async fn both_ways<Q, R>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<R>, ClientError>
    where
        Q: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        let request = self.request(requests);
        let mut grpc = self.grpc();
        let opening = timeout(self.options.call_timeout, async {
            grpc.ready().await.map_err(|source| self.unreachable(path, source))?;
            let codec = ProstCodec::<Q, R>::default();
            let opened = grpc.streaming(request, PathAndQuery::from_static(path), codec).await;
            opened.map_err(|status| self.refused(path, status))
        });
        let opened = opening.await.map_err(|_| self.deadline(path, self.options.call_timeout))?;
        Ok(opened?.into_inner())
    }

    /// Sorts out what the member said from what our own transport made up in its place.
    pub(super) fn refused(&self, call: &'static str, status: tonic::Status) -> ClientError {
        if caused_by::<tonic::TimeoutExpired>(&status) {
            return self.deadline(call, self.options.call_timeout);
        }
        // A status from the wire has no cause on this side.
        if status.source().is_some() {
            return self.unreachable(call, status);
        }
        ClientError::Refused { endpoint: self.endpoint().to_owned(), call, status: Box::new(status) }
    }

    fn unreachable(&self, call: &'static str, source: impl Error + Send + Sync + 'static) -> ClientError {
        ClientError::Unreachable { endpoint: self.endpoint().to_owned(), call, source: Box::new(source) }
    }

    fn deadline(&self, call: &'static str, after: Duration) -> ClientError {
        ClientError::Deadline { endpoint: self.endpoint().to_owned(), call, after }
    }

    pub(super) fn stalled(&self, call: &'static str) -> ClientError {
        ClientError::Stalled { endpoint: self.endpoint().to_owned(), call, after: self.options.stall_timeout }
    }

    pub(super) fn truncated(&self, call: &'static str, reason: &'static str) -> ClientError {
        ClientError::Truncated { endpoint: self.endpoint().to_owned(), call, reason }
    }
}

/// Whether an error of type `E` is among the causes of this one.
fn caused_by<E: Error + 'static>(error: &dyn Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    config
}
