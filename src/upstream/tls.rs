//! TLS: which certificates the gateway trusts, and which one it presents.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::Verifier;

/// Which certificates the gateway trusts, and which one it presents. The system's root certificates
/// are always trusted.
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Vec<CertificateDer<'static>>,
    certificate: Option<Arc<ClientCertificate>>,
}

/// A certificate with its chain, and its private key.
struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The text has no certificate or no key. The message says what is expected, and does not repeat
/// the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTls(&'static str);

// === impl Tls ===

impl Tls {
    /// Also trusts the authorities of this PEM.
    pub fn trust(&mut self, pem: &[u8]) -> Result<(), NotTls> {
        let wrong = NotTls("a file with certificates as PEM, at least one");
        let more = certificates(pem).ok_or(wrong)?;
        let authorities = [&*self.authorities, &more].concat();
        self.replace_if_usable(Self { authorities, certificate: self.certificate.clone() }, wrong)
    }

    /// Presents the certificate of this PEM, which also has its chain and private key.
    pub fn present(&mut self, pem: &[u8]) -> Result<(), NotTls> {
        let wrong = NotTls("a file with a certificate and its private key as PEM");
        let chain = certificates(pem).ok_or(wrong)?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| wrong)?;
        let certificate = Some(Arc::new(ClientCertificate { chain, key }));
        self.replace_if_usable(Self { authorities: self.authorities.clone(), certificate }, wrong)
    }

    /// rustls checks the contents of a PEM only when it builds a configuration.
    fn replace_if_usable(&mut self, other: Self, wrong: NotTls) -> Result<(), NotTls> {
        other.config().map_err(|_| wrong)?;
        *self = other;
        Ok(())
    }

    /// The configuration for rustls. Fails if a certificate, or the system's store, is invalid.
    pub fn config(&self) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let roots = self.authorities.iter().cloned();
        let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.certificate.as_deref() {
            Some(ClientCertificate { chain, key }) => {
                config.with_client_auth_cert(chain.clone(), key.clone_key())?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificates of a PEM. `None` if it has none, or one is malformed.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("certificate", &self.certificate.as_ref().map(|_| "[redacted]"))
            .finish()
    }
}
