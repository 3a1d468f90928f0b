//! `threadway check`: prints problems of the configuration and its upstreams.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;

use threadway::check;
use threadway::cli;
use threadway::config::Config;
use threadway::metrics::Metrics;
use tokio::net::TcpSocket;

use super::{FAILED, failed, read_config, runtime, say, unusable};

pub(super) fn run(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = config.agents(&Metrics::default()).map_err(failed)?;
    config.log.clone().to_stderr();
    let (can_listen, report) = runtime()?
        .block_on(async { (try_addresses(&config), check::check(&agents, &config).await) });
    let mut stdout = io::stdout().lock();
    for line in &report.lines {
        writeln!(stdout, "{line}").map_err(failed)?;
    }
    if report.is_good && can_listen { Ok(()) } else { Err(FAILED) }
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
                say(format!(
                    "{}, unless a running threadway listens there",
                    unusable(flag, listen, &error)
                ));
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
