//! Requests over TLS, on the real binary: whom it trusts is what the machine, or `SSL_CERT_FILE`,
//! says.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::{STREAM, Setting};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Answers every request on loopback with `answer`, until dropped.
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn server_config(&self, name: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.0)
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

impl Server {
    async fn start(config: ServerConfig, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust this server ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut head = [0; 4 << 10];
                let _ = stream.read(&mut head).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    answer.len()
                );
                let _ = stream.write_all(format!("{head}{answer}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }

    /// By name: a certificate is for one.
    fn url(&self) -> String {
        format!("https://localhost:{}/", self.address.port())
    }
}

async fn ask(setting: &Setting, urls: &[String]) {
    let writer = StreamWriter::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    let entry = |url: &String| PutEntry {
        partition_key: "key".to_owned(),
        explicit_hash_key: None,
        data: Bytes::from(format!("http GET {url}")),
    };
    let report = writer
        .put_all(urls.iter().map(entry), |_, _| {})
        .await
        .unwrap();
    let last: Vec<_> = report
        .last_sequence
        .iter()
        .map(|(shard, last)| (shard.to_string(), last.to_string()))
        .collect();
    setting.until_checkpointed("asking", &last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_tls_is_answered_by_whom_the_machine_trusts_under_the_name_that_was_asked_for()
 {
    let setting = Setting::new(1).await;
    let (known, unknown) = (Authority::new(), Authority::new());
    let trusted = setting.path().join("trusted.pem");
    std::fs::write(&trusted, known.0.pem()).unwrap();
    let good = Server::start(known.server_config("localhost"), "well met").await;
    let stranger = Server::start(unknown.server_config("localhost"), "trust me").await;
    let misnamed = Server::start(known.server_config("elsewhere.example.org"), "never mind").await;
    let servers = [&good, &stranger, &misnamed];
    let granted: Vec<_> = servers
        .iter()
        .map(|server| format!("localhost:{}", server.address.port()))
        .collect();
    let config = format!(
        "[host]\nadmin = \"127.0.0.1:0\"\n[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n\
         [http]\nallow-private = [\"127.0.0.1\", \"::1\"]\n[plugin.asking.grants]\nhttp = {granted:?}"
    );
    setting.drop_plugin("asking", &guest("asking"));
    let host = setting.host_knowing("a", &config, &[("SSL_CERT_FILE", &trusted)]);
    ask(&setting, &servers.map(Server::url)).await;

    eventually("both refusals", || {
        host.log().matches("error ErrorCode::").count() == 2
    })
    .await;
    let log = host.log();
    assert_eq!(log.matches("TlsProtocolError").count(), 2, "{log}");
    assert!(log.contains("200 8 well met"), "{log}");
    assert!(
        log.contains("is not sent: invalid peer certificate"),
        "the operator is told what is wrong: {log}"
    );
    assert!(
        !log.contains("trust me") && !log.contains("never mind"),
        "{log}"
    );
    assert!(
        host.metric("shardmill_plugin_http_requests_total", "2xx")
            .await
            >= 1.0
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}
