//! Reads the configuration again while the gateway serves: on SIGHUP, and when a file changes.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::agents::Agents;
use crate::config::{Config, Mistake};
use crate::metrics::Reload;
use crate::server::{Server, isolation};

/// How often the files are looked at, where they are. A change that comes in several steps is
/// over by the next look, or tried again then.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Reads the configuration again for as long as it is polled.
///
/// A configuration that is wrong changes nothing, and is told. `config` is the one that is served,
/// before `agents`. Meanwhile the log warns of upstreams that do not tell callers apart although the
/// configuration leaves that to them.
pub async fn on_demand(
    server: &Server,
    agents: Agents,
    mut config: Config,
    mut asked: Asked,
    read: impl Fn() -> Result<Config, Vec<Mistake>>,
) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warning = JoinSet::new();
    warning.spawn(isolation::warn(agents, config.settings.clone()));
    loop {
        tokio::select! {
            // Log files are moved away before the signal.
            () = asked.again() => server.reopen_audit(),
            Some(_) = warning.join_next() => continue,
            _ = looks.tick(), if config.is_watched => {
                if asked.seen == Seen::of(&config.files) {
                    continue;
                }
            }
        }
        // Before it is read: what changes meanwhile is read again.
        asked.seen = Seen::of(&config.files);
        let new = match read() {
            Ok(new) => new,
            Err(mistakes) => {
                server.metrics().reloaded(Reload::Refused);
                for mistake in mistakes {
                    keep(mistake);
                }
                continue;
            }
        };
        match new.agents(server.metrics()) {
            Ok(agents) => {
                let identity_lines = agents.identity_lines();
                for key in config.fixed(&new) {
                    tracing::warn!(key, "this takes a restart to change");
                }
                warning.abort_all();
                warning.spawn(isolation::warn(agents.clone(), new.settings.clone()));
                server.reload(agents, new.settings.clone());
                server.metrics().reloaded(Reload::Done);
                let changed = match config.changed(&new) {
                    keys if keys.is_empty() => {
                        "no key; the files that keys name were read too".to_owned()
                    }
                    keys => keys.join(", "),
                };
                tracing::info!(changed, "the configuration was read again");
                for line in identity_lines {
                    tracing::info!("{line}");
                }
                if new.files != config.files {
                    asked.seen = Seen::of(&new.files);
                }
                config = new;
            }
            Err(error) => {
                server.metrics().reloaded(Reload::Refused);
                keep(error);
            }
        }
    }
}

fn keep(why: impl Display) {
    tracing::error!(%why, "the configuration is wrong, and the old one stays");
}

/// How the files were at some moment.
#[derive(Debug, PartialEq, Eq)]
struct Seen(Vec<Option<(SystemTime, u64)>>);

impl Seen {
    fn of(files: &[PathBuf]) -> Self {
        let seen = |file: &PathBuf| {
            let told = std::fs::metadata(file).ok()?;
            Some((told.modified().ok()?, told.len()))
        };
        Self(files.iter().map(seen).collect())
    }
}

/// Somebody's wish that the configuration be read again.
#[derive(Debug)]
pub struct Asked {
    seen: Seen,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Asked {
    /// Catches SIGHUP from now on, where there is one, and notes how the files are. What changes
    /// behind this is not missed, however late it is waited for.
    pub fn new(files: &[PathBuf]) -> io::Result<Self> {
        Ok(Self {
            seen: Seen::of(files),
            #[cfg(unix)]
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    #[cfg(unix)]
    async fn again(&mut self) {
        if self.hangup.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    #[cfg(not(unix))]
    async fn again(&mut self) {
        std::future::pending::<()>().await;
    }
}
