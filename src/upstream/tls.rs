//! How a server is known over TLS, and how it knows us.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::Verifier;

/// How a server is known over TLS, and how it knows us. The system's roots always count.
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Vec<CertificateDer<'static>>,
    identity: Option<Arc<Identity>>,
}

/// A certificate with its chain, and the key that proves it.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// A text holds no certificate, or no key. It is not repeated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTls(&'static str);

// === impl Tls ===

impl Tls {
    /// Trusts the authorities whose certificates are in this PEM, too.
    pub fn trust(&mut self, pem: &[u8]) -> Result<(), NotTls> {
        let wrong = NotTls("a file with certificates as PEM, at least one");
        let more = certificates(pem).ok_or(wrong)?;
        let authorities = [&*self.authorities, &more].concat();
        self.become_usable(Self { authorities, identity: self.identity.clone() }, wrong)
    }

    /// Shows the server this certificate, whose chain and private key are in this PEM.
    pub fn identify(&mut self, pem: &[u8]) -> Result<(), NotTls> {
        let wrong = NotTls("a file with a certificate and its private key as PEM");
        let chain = certificates(pem).ok_or(wrong)?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| wrong)?;
        let identity = Some(Arc::new(Identity { chain, key }));
        self.become_usable(Self { authorities: self.authorities.clone(), identity }, wrong)
    }

    /// What is in the PEM is only looked at when a configuration is made of it.
    fn become_usable(&mut self, other: Self, wrong: NotTls) -> Result<(), NotTls> {
        other.config().map_err(|_| wrong)?;
        *self = other;
        Ok(())
    }

    /// What TLS is spoken with. An error says what is wrong with the certificates, the system's too.
    pub(super) fn config(&self) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = self.authorities.iter().cloned();
        let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.identity.as_deref() {
            Some(Identity { chain, key }) => {
                config.with_client_auth_cert(chain.clone(), key.clone_key())?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificates of a PEM; `None` if there is none, or one that is no PEM.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("identity", &self.identity.as_ref().map(|_| "[redacted]"))
            .finish()
    }
}
