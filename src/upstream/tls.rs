//! How a server is known over TLS, and how it knows us.

use std::fmt;

use reqwest::{Certificate, ClientBuilder, Identity};

/// How a server is known over TLS, and how it knows us. The system's roots always count.
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Vec<Certificate>,
    identity: Option<Identity>,
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
        let more = Certificate::from_pem_bundle(pem).map_err(|_| wrong)?;
        if more.is_empty() {
            return Err(wrong);
        }
        let authorities = [&*self.authorities, &more].concat();
        self.become_usable(Self { authorities, identity: self.identity.clone() }, wrong)
    }

    /// Shows the server this certificate, whose chain and private key are in this PEM.
    pub fn identify(&mut self, pem: &[u8]) -> Result<(), NotTls> {
        let wrong = NotTls("a file with a certificate and its private key as PEM");
        let identity = Some(Identity::from_pem(pem).map_err(|_| wrong)?);
        self.become_usable(Self { authorities: self.authorities.clone(), identity }, wrong)
    }

    /// What is in the PEM is only looked at when a client is made of it.
    fn become_usable(&mut self, other: Self, wrong: NotTls) -> Result<(), NotTls> {
        other.apply(reqwest::Client::builder()).build().map_err(|_| wrong)?;
        *self = other;
        Ok(())
    }

    pub(super) fn apply(&self, client: ClientBuilder) -> ClientBuilder {
        let client = client.tls_certs_merge(self.authorities.iter().cloned());
        match &self.identity {
            Some(identity) => client.identity(identity.clone()),
            None => client,
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("identity", &self.identity.as_ref().map(|_| "[redacted]"))
            .finish()
    }
}
