//! `threadway check`: prints problems of the configuration and its upstreams.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use threadway::check;
use threadway::config::{Config, Options};
use threadway::metrics::Metrics;
use tokio::net::TcpSocket;
use tracing::Level;

use super::lines::{read_config, report};
use super::{FAILED, failed, runtime, say, start_log, unusable};

pub(super) fn run(options: &Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = config.agents(&Metrics::default()).map_err(failed)?;
    start_log(config.log.clone());
    let (can_listen, checked) = runtime()?
        .block_on(async { (try_addresses(&config), check::check(&agents, &config).await) });
    // One level for the whole result.
    let level = if checked.is_good { Level::INFO } else { Level::ERROR };
    report(level, &checked.lines).map_err(failed)?;
    if checked.is_good && can_listen { Ok(()) } else { Err(FAILED) }
}

/// Whether `serve` can listen on its addresses, or could if nobody else did. A running gateway,
/// which is no problem of the configuration, is said only.
fn try_addresses(config: &Config) -> bool {
    let admin = config.admin_listen.map(|listen| ("--admin-listen", listen));
    let mut can_listen = true;
    for (flag, listen) in [("--listen", config.listen)].into_iter().chain(admin) {
        match bind(listen) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                say(unusable(flag, listen, &error));
            }
            Err(error) => {
                failed(unusable(flag, listen, &error));
                can_listen = false;
            }
        }
    }
    can_listen
}

/// Takes an address for a moment, as a listener does, but without listening.
fn bind(listen: SocketAddr) -> io::Result<()> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(listen)
}
