//! What the start of the gateway needs of this machine: files that can be written, and addresses
//! that are its own alone.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use url::Host;

use super::raw::{ConfigError, Given};
use super::{Config, Upstream};
use crate::audit::AuditDestination;
use crate::upstream::BaseUrl;

impl Config {
    /// The files and directories that cannot be written. Creates none of them.
    pub fn unwritable(&self) -> Vec<ConfigError> {
        let audit = match &self.audit_log {
            Some(AuditDestination::File(path)) => Some(("audit_log", can_append(path))),
            Some(AuditDestination::Stderr) | None => None,
        };
        let record = self.record.as_ref().map(|to| ("record.dir", can_create_below(&to.dir)));
        let wrong = |(key, tried): (&str, io::Result<()>)| {
            let error = tried.err()?;
            Some(self.given(key).mistaken(format!("a place that can be written to ({error})")))
        };
        audit.into_iter().chain(record).filter_map(wrong).collect()
    }

    /// The URLs at which the gateway itself would answer.
    pub(super) fn own_urls(&self) -> Vec<ConfigError> {
        let own = self.urls().into_iter().filter(|(_, url)| self.is_own(url));
        let expected = "the URL of another server: the gateway itself listens there";
        own.map(|(key, _)| self.given(&key).mistaken(expected)).collect()
    }

    fn given(&self, key: &str) -> Given {
        self.given.get(key).cloned().unwrap_or_else(|| Given::new(&format!("`{key}`"), ""))
    }

    /// The servers that the gateway sends requests to, each with its key.
    fn urls(&self) -> Vec<(String, &BaseUrl)> {
        let mut urls = Vec::new();
        for Upstream { name, url, other_urls, .. } in &self.upstreams {
            let keys = [format!("upstreams.{name}"), "upstream".to_owned()];
            let keys =
                keys.iter().flat_map(|prefix| ["url", "urls"].map(|key| format!("{prefix}.{key}")));
            let key = keys.into_iter().find(|key| self.given.contains_key(key)).unwrap_or_default();
            urls.extend(std::iter::once(url).chain(other_urls).map(|url| (key.clone(), url)));
        }
        urls.extend(self.otlp_endpoint.iter().map(|url| ("otlp_endpoint".to_owned(), url)));
        urls
    }

    /// Whether one of the gateway's own listeners answers at this URL, as far as its text shows it.
    fn is_own(&self, url: &BaseUrl) -> bool {
        let url = url.join(&[]);
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let hosts = match url.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            Some(Host::Domain("localhost")) => loopback.to_vec(),
            Some(Host::Domain(_)) | None => Vec::new(),
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let listeners = [Some(self.listen), self.admin_listen];
        listeners.into_iter().flatten().any(|listen| {
            // An unspecified address has all addresses of this machine, of which loopback is known.
            let is_known =
                |host: &IpAddr| host.is_loopback() || host.is_unspecified() || *host == listen.ip();
            let mut hosts = hosts.iter().filter(|host| is_known(host));
            hosts.any(|host| collide(listen, (*host, port).into()))
        })
    }
}

/// Whether one socket cannot listen at an address while another listens at the other.
pub(super) fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (port, ips) = (one.port(), [one, other].map(|address| address.ip().to_canonical()));
    let covers = |ip: IpAddr, other: IpAddr| match ip {
        // As systems have it by default, this address stands for those of IPv4 too.
        IpAddr::V6(_) => ip.is_unspecified() || ip == other,
        IpAddr::V4(_) => ip.is_unspecified() && other.is_ipv4() || ip == other,
    };
    let [ip, other_ip] = ips;
    port != 0 && port == other.port() && (covers(ip, other_ip) || covers(other_ip, ip))
}

/// Whether a file can be appended to, or be created for that.
fn can_append(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        // Opening a pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            can_create_in(path.parent().unwrap_or_else(|| Path::new("")))
        }
        Err(error) => Err(error),
    }
}

/// Whether files can be created in a directory, or in one that would be created for them.
fn can_create_below(dir: &Path) -> io::Result<()> {
    match fs::metadata(dir) {
        Ok(_) => can_create_in(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
            Some(above) => can_create_below(above),
            None => can_create_in(Path::new("")),
        },
        Err(error) => Err(error),
    }
}

/// Creates a file of another name and removes it: only the system knows all reasons against it.
fn can_create_in(dir: &Path) -> io::Result<()> {
    let here = dir.as_os_str().is_empty();
    let dir = if here { PathBuf::from(".") } else { dir.to_owned() };
    let probe = dir.join(format!(".threadway-probe-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe)?;
    fs::remove_file(&probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_collide_where_one_socket_takes_what_the_other_needs() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "192.0.2.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("[::]:1", "[::1]:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::]:1", "0.0.0.0:1", true),
            ("[::1]:1", "127.0.0.1:1", false),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", "0.0.0.0:1", true),
        ] {
            let [one, other] = [one, other].map(|address| address.parse().unwrap());
            assert_eq!(collide(one, other), expected, "{one} {other}");
            assert_eq!(collide(other, one), expected, "{other} {one}");
        }
    }
}
