//! Upstreams over TLS: which certificates the gateway accepts, and its own certificate.

use std::sync::Arc;

use http::HeaderMap;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use threadway::upstream::{Client, Error, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A server with a certificate for one name, which answers each request with `{"ok":true}`.
struct Server {
    url: String,
    _serving: JoinSet<()>,
}

// === impl Authority ===

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name, and its key, as PEM.
    fn issue(&self, name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        params.signed_by(&key, &self.0).unwrap().pem() + &key.serialize_pem()
    }
}

// === impl Server ===

impl Server {
    /// Serves with this certificate. If an authority is given, only clients with a certificate of
    /// that authority are accepted.
    async fn start(certificate: &str, clients: Option<&Authority>) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let config = match clients {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
                roots.add(root).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut socket) = acceptor.accept(socket).await else { continue };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{\"ok\":true}";
                // A client that did not accept the certificate has disconnected.
                let _ = socket.write_all(answer).await;
                let _ = socket.shutdown().await;
            }
        });
        Self { url, _serving: serving }
    }

    async fn asked(&self, tls: &Tls) -> Result<(), Error> {
        let client = Client::with(self.url.parse().unwrap(), None, HeaderMap::new(), tls).unwrap();
        client.probe().await
    }
}

/// Why no connection was made.
fn reason(asked: Result<(), Error>) -> String {
    match asked {
        Err(Error::Unreachable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn certificate_that_is_not_trusted_is_explained() {
    let ours = Authority::new();
    let server = Server::start(&ours.issue("127.0.0.1"), None).await;
    let why = reason(server.asked(&Tls::default()).await);
    assert!(why.contains("name a file with the authority's certificate in `ca_file`"), "{why}");
    // As `openssl req -x509` makes it: the server's certificate may sign others.
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let server = Server::start(&(pem.clone() + &key.serialize_pem()), None).await;
    let mut tls = Tls::default();
    tls.trust(pem.as_bytes()).unwrap();
    let why = reason(server.asked(&tls).await);
    assert!(why.contains("its certificate is itself an authority's"), "{why}");
}

#[tokio::test]
async fn server_of_a_trusted_authority_is_accepted_and_shown_a_certificate() {
    let (ours, others) = (Authority::new(), Authority::new());
    let here = ours.issue("127.0.0.1");
    let server = Server::start(&here, None).await;
    let elsewhere = Server::start(&ours.issue("langgraph.example"), None).await;
    let asking = Server::start(&here, Some(&ours)).await;
    for (case, server, trusted, presented, is_accepted) in [
        ("no system knows this authority", &server, vec![], None, false),
        ("another authority does not vouch for the server", &server, vec![&others], None, false),
        ("one of the authorities vouches for it", &server, vec![&others, &ours], None, true),
        ("the name is another's", &elsewhere, vec![&others, &ours], None, false),
        ("no certificate is shown", &asking, vec![&ours], None, false),
        ("the certificate is another authority's", &asking, vec![&ours], Some(&others), false),
        ("the certificate is the authority's", &asking, vec![&ours], Some(&ours), true),
    ] {
        let mut tls = Tls::default();
        for authority in trusted {
            tls.trust(authority.pem().as_bytes()).unwrap();
        }
        if let Some(authority) = presented {
            tls.present(authority.issue("gateway").as_bytes()).unwrap();
        }
        match server.asked(&tls).await {
            Ok(()) => assert!(is_accepted, "{case}"),
            Err(Error::Unreachable { .. } | Error::Interrupted { .. }) => {
                assert!(!is_accepted, "{case}");
            }
            Err(error) => panic!("{case}: {error}"),
        }
    }
}

#[test]
fn text_that_is_no_certificate_is_refused_and_not_repeated() {
    let mut tls = Tls::default();
    for text in ["", "secret", "-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n"] {
        let error = tls.trust(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("PEM") && !error.contains("secret"), "{error}");
        let error = tls.present(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("PEM") && !error.contains("secret"), "{error}");
    }
    tls.present(Authority::new().issue("gateway").as_bytes()).unwrap();
    assert_eq!(format!("{tls:?}"), "Tls { authorities: 0, certificate: Some(\"[redacted]\") }");
}
