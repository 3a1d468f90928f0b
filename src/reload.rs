//! Reloads the configuration while the gateway serves: on SIGHUP, and when a file changes.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::agents::Agents;
use crate::config::{Config, ConfigError};
use crate::metrics::Reload;
use crate::server::{Server, Settings, isolation};

/// How often the files are checked where `watch_config` is on. A change in several steps is
/// complete by the next check, or is retried then.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Reloads the configuration whenever `signal` asks for it, for as long as the future is polled.
///
/// An invalid configuration changes nothing, and its mistakes are logged. `config` is the one in
/// use, with its `agents`. Meanwhile the log warns of upstreams that do not check credentials
/// although the configuration relies on them.
pub async fn on_demand(
    server: &Server,
    agents: Agents,
    mut config: Config,
    mut signal: ReloadSignal,
    read: impl Fn() -> Result<Config, Vec<ConfigError>>,
) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warning = JoinSet::new();
    let Settings { auth, forward, .. } = config.settings.clone();
    warning.spawn(isolation::warn(agents, auth, forward));
    loop {
        tokio::select! {
            // Log rotation moves files away before it sends the signal.
            () = signal.wait() => server.reopen_audit(),
            Some(_) = warning.join_next() => continue,
            _ = ticks.tick(), if config.is_watched => {
                if signal.file_times == FileTimes::of(&config.files) {
                    continue;
                }
            }
        }
        // Before reading: a change during the read is noticed by the next check.
        signal.file_times = FileTimes::of(&config.files);
        let new = match read() {
            Ok(new) => new,
            Err(mistakes) => {
                server.metrics().reloaded(Reload::Refused);
                for mistake in mistakes {
                    log_refusal(mistake);
                }
                continue;
            }
        };
        match new.agents(server.metrics()) {
            Ok(agents) => {
                let lines = [agents.address_lines(), agents.identity_lines()].concat();
                for key in config.needs_restart(&new) {
                    tracing::warn!(key, "the change of this key takes effect after a restart");
                }
                warning.abort_all();
                let Settings { auth, forward, .. } = new.settings.clone();
                warning.spawn(isolation::warn(agents.clone(), auth, forward));
                server.reload(agents, new.settings.clone());
                server.metrics().reloaded(Reload::Done);
                let changed = match config.changed(&new) {
                    keys if keys.is_empty() => {
                        "no key; the files that keys name were read too".to_owned()
                    }
                    keys => keys.join(", "),
                };
                tracing::info!(changed, "configuration reloaded");
                for line in lines {
                    tracing::info!("{line}");
                }
                if new.files != config.files {
                    signal.file_times = FileTimes::of(&new.files);
                }
                config = new;
            }
            Err(error) => {
                server.metrics().reloaded(Reload::Refused);
                log_refusal(error);
            }
        }
    }
}

fn log_refusal(why: impl Display) {
    tracing::error!(%why, "the new configuration is invalid; the old one stays in use");
}

/// Modification times and sizes of files.
#[derive(Debug, PartialEq, Eq)]
struct FileTimes(Vec<Option<(SystemTime, u64)>>);

impl FileTimes {
    fn of(files: &[PathBuf]) -> Self {
        let seen = |file: &PathBuf| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        Self(files.iter().map(seen).collect())
    }
}

/// Requests to reload the configuration: SIGHUP, and changed files.
#[derive(Debug)]
pub struct ReloadSignal {
    file_times: FileTimes,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    /// Catches SIGHUP from now on, where the system has it, and notes the state of the files. Later
    /// changes are not missed, however late `on_demand` is polled.
    pub fn new(files: &[PathBuf]) -> io::Result<Self> {
        Ok(Self {
            file_times: FileTimes::of(files),
            #[cfg(unix)]
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    #[cfg(unix)]
    async fn wait(&mut self) {
        if self.hangup.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    #[cfg(not(unix))]
    async fn wait(&mut self) {
        std::future::pending::<()>().await;
    }
}
