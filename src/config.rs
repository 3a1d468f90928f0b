//! The configuration of the gateway, read from flags, the environment and a file.
//!
//! A flag beats the environment, the environment beats the file, and the file beats the default.
//! All mistakes are reported at once.
//!
//! - `keys`: the table of all keys. `flags`: the flags that it has.
//! - `raw`: the values as they were given, by key.
//! - `front`: who may call, and what is forwarded.
//! - `upstreams`: the LangGraph servers and aliases for their agents.
//! - `emit`: what viewers see of runs. `acp`: how editors see the agents.
//! - `environment`: misspelt variables.
//! - `start`: what the start of the gateway needs of this machine.

mod acp;
mod emit;
mod environment;
mod flags;
mod front;
mod keys;
mod raw;
mod start;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;

pub use acp::Acp;
pub use environment::unknown_variables;
pub use flags::Options;
pub use keys::{AppliesWhen, ConfigKey, DefaultValue, KEYS, ValueKind, variable};
pub use raw::ConfigError;

use crate::agents::{self, Agents, Emits, MessagesKey, MessagesKeys};
use crate::audit::AuditDestination;
use crate::metrics::{DEFAULT_MEMORY_BYTES, Metrics};
use crate::runs::{self, OwnerPolicy, Recording};
use crate::server::{Auth, BODIES_IN_MEMORY, Cors, Credentials, Limits, Settings, Trust};
use crate::telemetry::{Log, LogFormat, TRACES_PATH};
use crate::upstream::{self, ApiKey, BaseUrl, Identity, SetupError, Tls};
use raw::{Given, Raw};

/// The default address: only this machine can reach it.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8484";

/// The default log filter: one line per run, and problems.
const DEFAULT_LOG: &str = "info";

/// The name of the upstream if there is only one, in the table `upstream`.
pub const DEFAULT_UPSTREAM: &str = "default";

/// How long the client that started a run may be gone. A page reloads in seconds; a phone that
/// changes networks needs longer.
const DEFAULT_OWNER_GRACE_SECONDS: u64 = 30;

/// The configuration of the gateway.
#[derive(Debug)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Whether anyone who reaches that address can use the agents, because there is no
    /// authentication.
    pub is_open: bool,
    /// The address on which metrics are served; `None` to serve none.
    pub admin_listen: Option<SocketAddr>,
    /// The LangGraph servers in the order of the file: at least one, unless the configuration was
    /// read with [`FallbackServer::Allowed`].
    pub upstreams: Vec<Upstream>,
    /// Aliases of agents: the alias, and the agent's own name.
    pub aliases: Vec<(String, String)>,
    /// What viewers are sent of each agent's runs.
    pub emits: Emits,
    /// The messages keys of agents that have one of their own.
    pub messages_keys: MessagesKeys,
    /// Who may call, and what the gateway does with requests.
    pub settings: Settings,
    /// How ACP presents the agents.
    pub acp: Acp,
    /// What to log.
    pub log: Log,
    /// The OTLP collector for traces; `None` to export none.
    pub otlp_endpoint: Option<BaseUrl>,
    /// The audit log; `None` to write none.
    pub audit_log: Option<AuditDestination>,
    /// Where runs are recorded; `None` to record none.
    pub record: Option<Recording>,
    /// Whether a change of the files reloads the configuration.
    pub is_watched: bool,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The given values by key. A reload compares them with the new ones, to log which keys
    /// changed.
    given: BTreeMap<String, Given>,
}

/// An agent that a key of the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAgent {
    /// The key.
    pub(crate) place: String,
    /// The agent's name.
    pub(crate) name: String,
}

/// What is read if no flag, variable or key names a LangGraph server.
#[derive(Clone, Copy, Debug)]
pub enum FallbackServer<'a> {
    /// This is a mistake.
    Refused,
    /// This server is read, with the other keys of `upstream`.
    Default(&'a BaseUrl),
    /// No upstream is read.
    Allowed,
}

/// A LangGraph server.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The prefix of its agents' names, if there are several upstreams.
    pub name: String,
    /// The server's URL.
    pub url: BaseUrl,
    /// Other URLs of the same server, in the order in which they are tried after the first.
    pub other_urls: Vec<BaseUrl>,
    /// The key sent to it.
    pub api_key: Option<ApiKey>,
    /// Headers sent with each request.
    pub headers: HeaderMap,
    /// Whether it is sent its callers' credentials; `None` if the configuration does not say.
    pub identity: Option<Identity>,
    /// The state key under which its graphs keep the conversation.
    pub messages_key: MessagesKey,
    /// Its certificate authority, and the gateway's client certificate.
    pub tls: Tls,
}

// === impl Config ===

impl Config {
    /// Reads the configuration, which must name an upstream. The error holds all mistakes.
    pub fn read(options: &Options, log: Option<&str>) -> Result<Self, Vec<ConfigError>> {
        Self::read_or(options, log, FallbackServer::Refused)
    }

    /// Reads the configuration. The error holds all mistakes.
    pub fn read_or(
        options: &Options,
        log: Option<&str>,
        unnamed: FallbackServer<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        let filed = options.config.as_deref().map(Raw::read_file).unwrap_or_default();
        if !filed.mistakes.is_empty() && filed.given.is_empty() {
            // Without the file, other keys would be reported as missing.
            return Err(filed.mistakes);
        }
        let mut raw = Raw::of_flags(options, log).over(filed);
        let given = raw.given.clone();
        let config = raw.check(unnamed).map(|config| Self { given, ..config });
        // Only a gateway that must have an upstream listens.
        if let (Some(config), FallbackServer::Refused) = (&config, unnamed) {
            raw.mistakes.extend(config.own_urls());
        }
        match config {
            Some(config) if raw.mistakes.is_empty() => Ok(config),
            Some(_) | None => Err(raw.mistakes),
        }
    }

    /// The agents that keys name. Not among them: those that aliases stand for.
    pub fn named_agents(&self) -> Vec<NamedAgent> {
        let Self { acp, emits, messages_keys, aliases, .. } = self;
        let new = acp.agent.iter().map(|agent| NamedAgent::new("acp.agent", agent));
        let modes = acp.settings.modes.iter().filter_map(|mode| {
            let place = format!("acp.modes.{}.assistant", mode.id);
            Some(NamedAgent::new(&place, mode.assistant.as_deref()?))
        });
        // The key of an alias's table is also that of the graph under its own name.
        let is_own = |name: &String| aliases.iter().any(|(_, own_name)| own_name == name);
        let tables: BTreeSet<_> = emits.by_agent.keys().chain(messages_keys.keys()).collect();
        let tables = tables.into_iter().filter(|name| !is_own(name));
        let tables = tables.map(|name| NamedAgent::new(&format!("agents.{name}"), name));
        new.chain(modes).chain(tables).collect()
    }

    /// The agents of the upstreams. Requests to them are counted in `metrics`.
    pub fn agents(&self, metrics: &Metrics) -> Result<Agents, SetupError> {
        let client = |(place, upstream): (usize, &Upstream)| {
            let identity = upstream.identity_at(place);
            let Upstream {
                name,
                url,
                other_urls,
                api_key,
                headers,
                identity: _,
                messages_key,
                tls,
            } = upstream.clone();
            let client = upstream::Client::at(url, other_urls, api_key, headers, &tls)?;
            let client = client.with_identity(identity).with_metrics(metrics);
            let client = client.with_messages_key(messages_key);
            Ok(agents::Upstream { name, client })
        };
        let upstreams = self.upstreams.iter().enumerate().map(client).collect::<Result<_, _>>()?;
        let agents = Agents::new(upstreams, self.aliases.clone()).with_emits(self.emits.clone());
        Ok(agents.with_messages_keys(self.messages_keys.clone()))
    }

    /// The keys whose values differ. The contents of files that keys name are not compared.
    pub(crate) fn changed(&self, other: &Self) -> Vec<String> {
        let keys: BTreeSet<_> = self.given.keys().chain(other.given.keys()).collect();
        let value = |config: &Self, key: &String| config.given.get(key).map(|g| g.value.clone());
        let differs = |key: &&&String| value(self, key) != value(other, key);
        let mut changed: Vec<_> = keys.iter().filter(differs).map(ToString::to_string).collect();
        if self.acp != other.acp {
            changed.push("acp".to_owned());
        }
        changed
    }

    /// The keys with other values that take effect only after a restart. A value that is only
    /// written in another way, or that another key makes useless, has no effect.
    pub(crate) fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let value =
            |config: &'_ Self, key: &ConfigKey| match (config.given.get(key.name), key.absent) {
                (Some(given), _) => given.value.clone(),
                (None, DefaultValue::Value(value)) => value.to_owned(),
                (None, DefaultValue::Words(_) | DefaultValue::Unsaid) => String::new(),
            };
        let (limits, other_limits) = (&self.settings.limits, &other.settings.limits);
        let has_effect = |key: &ConfigKey| match key.name {
            "listen" => self.listen != other.listen,
            "admin_listen" => self.admin_listen != other.admin_listen,
            "otlp_endpoint" => self.otlp_endpoint != other.otlp_endpoint,
            "audit_log" => self.audit_log != other.audit_log,
            "record.dir" | "record.files" | "record.bytes" => self.record != other.record,
            "log" => self.log.to_string() != other.log.to_string(),
            "on_owner_disconnect" | "limits.owner_grace_seconds" => {
                limits.owners != other_limits.owners
            }
            _ => true,
        };
        let differs = |key: &&ConfigKey| value(self, key) != value(other, key) && has_effect(key);
        let late = KEYS.iter().filter(|key| key.applies == AppliesWhen::Restart);
        late.filter(differs).map(|key| key.name).collect()
    }
}

// === impl NamedAgent ===

impl NamedAgent {
    pub(crate) fn new(place: &str, name: &str) -> Self {
        Self { place: place.to_owned(), name: name.to_owned() }
    }
}

// === impl Upstream ===

impl Upstream {
    /// Whether the upstream at this place is sent its callers' credentials. By default only the
    /// first one is.
    fn identity_at(&self, place: usize) -> Identity {
        let by_place = if place == 0 { Identity::Forwarded } else { Identity::Withheld };
        self.identity.unwrap_or(by_place)
    }
}

/// The format of log lines that a configuration names, even if it has mistakes.
pub fn log_format(options: &Options, log: Option<&str>) -> LogFormat {
    // The mistakes are those that `Config::read` reports.
    let filed = options.config.as_deref().map(Raw::read_file);
    let mut raw = Raw::of_flags(options, log).over(filed.unwrap_or_default());
    raw.take("log").map(|given| LogFormat::named_in(&given.value)).unwrap_or_default()
}

/// The log settings of a command without a config file.
pub fn log(log: Option<&str>) -> Result<Log, ConfigError> {
    let default = Given::new("the default", DEFAULT_LOG);
    let log = log.filter(|value| !value.is_empty());
    log.map_or(default, |value| Given::new("--log (THREADWAY_LOG)", value)).log()
}

/// An address for the demo, which has no `auth`.
pub fn demo_address(
    place: &str,
    value: &str,
    is_insecure: bool,
) -> Result<SocketAddr, ConfigError> {
    let given = Given::new(place, value);
    let address = given.clone().address()?;
    if address.ip().is_loopback() || is_insecure {
        return Ok(address);
    }
    let expected = "a loopback address, since the demo has no `auth`: anyone who can reach another \
                    address could use it; or pass --insecure";
    Err(given.mistaken(expected))
}

/// The origins whose pages may use the demo, comma-separated. The demo has no `auth`.
pub fn demo_cors(place: &str, value: &str, is_insecure: bool) -> Result<Cors, ConfigError> {
    let given = Given::new(place, value);
    let cors = given.cors(Credentials::Omitted)?;
    if cors == Cors::Any && !is_insecure {
        let expected = "a list of origins, since the demo has no `auth`: any page that someone here \
                        visits could use it; or pass --insecure";
        return Err(given.mistaken(expected));
    }
    Ok(cors)
}

// === impl Raw ===

impl Raw {
    fn check(&mut self, unnamed: FallbackServer<'_>) -> Option<Config> {
        let given = self.take("listen").unwrap_or_else(|| Given::new("", DEFAULT_LISTEN));
        let listen = self.keep(given.clone().address());
        let is_insecure = self.is_on("insecure");
        let given_admin = self.given.get("admin_listen").cloned();
        let admin_listen = self.admin_listen();
        if let (Some(given), Some(listen), Some(admin)) = (given_admin, listen, admin_listen)
            && start::collide(listen, admin)
        {
            let expected = format!("another address than that of `listen`, {listen}");
            self.note(given.mistaken(expected));
        }
        let upstreams = self.upstreams(unnamed);
        let emits = self.emits();
        let mut messages_keys = self.messages_keys();
        let aliases = self.aliases(&upstreams);
        // The key belongs to the graph, whatever name it is called by.
        for (alias, own_name) in &aliases {
            if let Some(key) = messages_keys.get(alias).cloned() {
                messages_keys.entry(own_name.clone()).or_insert(key);
            }
        }
        let forward = self.forward();
        let is_reached = listen.is_some_and(|address| !address.ip().is_loopback());
        let trust = if is_reached && !is_insecure { Trust::Proven } else { Trust::Given };
        let auth = self.auth(&upstreams, &forward, trust);
        let is_open = is_reached && matches!(auth, Some(Auth::None));
        if is_open && !is_insecure {
            let expected = "a loopback address, since `auth.mode` is none: anyone who can reach \
                            another address could use the agents; choose an `auth.mode`, or pass \
                            --insecure";
            self.note(given.mistaken(expected));
        }
        let cors = self.cors();
        if cors == Cors::Any && matches!(auth, Some(Auth::None)) && !is_insecure {
            let expected = "a list of origins, since `auth.mode` is none: any page that someone \
                            here visits could use the agents; choose an `auth.mode`, or pass \
                            --insecure";
            self.note(Given::new("`cors.origins`", "*").mistaken(expected));
        }
        let hosts = self.hosts();
        // A gateway with host names is behind a proxy, and callers are not only users of this
        // machine.
        let is_shared = is_reached || !hosts.is_empty();
        let is_open_to_all = matches!(auth, Some(Auth::None));
        let is_private = !is_shared && is_open_to_all;
        let thread_routes = self.thread_routes(auth.as_ref(), is_shared);
        let settings = Settings {
            acp: (&self.acp).into(),
            thread_routes,
            auth: auth.unwrap_or_default(),
            cors,
            rates: self.rates(),
            hosts,
            forward,
            allowance: self.allowance(is_open_to_all),
            error_detail: self.error_detail(),
            on_message: self.on_message(),
            compression: self.compression(),
            page: self.page(is_private),
            limits: self.limits(),
        };
        let log = self.take("log").unwrap_or_else(|| Given::new("", DEFAULT_LOG));
        let log = self.keep(log.log());
        let otlp_endpoint = self.otlp_endpoint();
        let audit_log = self.audit_log();
        let record = self.record();
        let watched = self.given.get("watch_config").cloned();
        let is_watched = self.is_on("watch_config");
        if let Some(given) = watched.filter(|_| is_watched && self.files.is_empty()) {
            self.note(given.mistaken("a file to watch: --config FILE"));
        }
        Some(Config {
            listen: listen?,
            is_open,
            admin_listen,
            upstreams,
            aliases,
            emits,
            messages_keys,
            settings,
            acp: std::mem::take(&mut self.acp),
            log: log?,
            otlp_endpoint,
            audit_log,
            record,
            is_watched,
            files: std::mem::take(&mut self.files),
            given: BTreeMap::new(),
        })
    }

    /// The address of the admin listener, which does not authenticate.
    fn admin_listen(&mut self) -> Option<SocketAddr> {
        let is_allowed = self.is_on("admin_insecure");
        let given = self.take("admin_listen")?;
        let address = self.keep(given.clone().address())?;
        if !address.ip().is_loopback() && !is_allowed {
            let expected = "a loopback address, since the admin listener has no `auth`: anyone \
                            who can reach another address could read the metrics; or pass \
                            --admin-insecure";
            self.note(given.mistaken(expected));
        }
        Some(address)
    }

    /// The collector's URL, to which the gateway itself adds the path for traces.
    fn otlp_endpoint(&mut self) -> Option<BaseUrl> {
        let given = self.take("otlp_endpoint")?;
        let url = self.keep(upstreams::base_url(given.clone()))?;
        if url.to_string().ends_with(&format!("/{TRACES_PATH}")) {
            let expected = format!("the URL without /{TRACES_PATH}, which is added to it");
            self.note(given.mistaken(expected));
        }
        Some(url)
    }

    fn audit_log(&mut self) -> Option<AuditDestination> {
        let given = self.take("audit_log")?;
        let expected = "a file's path, or `stderr`";
        if given.value.is_empty() {
            return self.keep(Err(given.hidden(expected)));
        }
        self.keep(given.parse(expected))
    }

    /// Where runs are recorded. Without `record.dir` nothing is recorded.
    fn record(&mut self) -> Option<Recording> {
        let files = self.number("record.files");
        let bytes = self.number("record.bytes");
        let dir = self.take("record.dir")?;
        if dir.value.is_empty() {
            return self.keep(Err(dir.hidden("a directory")));
        }
        Some(Recording {
            dir: PathBuf::from(dir.value),
            files: files.unwrap_or(runs::DEFAULT_FILES),
            bytes: bytes.unwrap_or(runs::DEFAULT_BYTES),
        })
    }

    /// The memory for clients. A caller's share must fit the largest body.
    fn memory_bytes(&mut self, body_bytes: usize) -> usize {
        let least = body_bytes * BODIES_IN_MEMORY;
        let given = self.given.get("limits.memory_bytes").cloned();
        let bytes = self.number::<usize>("limits.memory_bytes");
        if let Some(given) = given.filter(|_| bytes.is_some_and(|bytes| bytes < least)) {
            let expected = format!(
                "at least {least}, {BODIES_IN_MEMORY} times `limits.body_bytes`, which is {body_bytes}"
            );
            self.note(given.mistaken(expected));
        }
        bytes.unwrap_or_else(|| DEFAULT_MEMORY_BYTES.max(least))
    }

    fn limits(&mut self) -> Limits {
        let mut limits = Limits::default();
        let policies = [("continue", false), ("cancel", true)];
        // Whether a run is cancelled when its owner has left.
        let cancels = self.word("on_owner_disconnect", &policies);
        if let Some(connections) = self.number("limits.connections") {
            limits.connections = connections;
        }
        let given = self.given.get("limits.connections_per_peer").cloned();
        let per_peer = self.number("limits.connections_per_peer");
        if let Some(given) = given.filter(|_| per_peer.is_some_and(|n| n > limits.connections)) {
            let expected = format!("at most `limits.connections`, which is {}", limits.connections);
            self.note(given.mistaken(expected));
        }
        limits.connections_per_peer = per_peer.and_then(NonZeroUsize::new);
        if let Some(seconds) = self.number("limits.header_timeout_seconds") {
            limits.header_timeout = Duration::from_secs(seconds);
        }
        for (key, place) in [
            ("limits.body_bytes", &mut limits.body_bytes),
            ("limits.log_bytes", &mut limits.log_bytes),
            ("limits.header_bytes", &mut limits.header_bytes),
        ] {
            *place = self.number(key).unwrap_or(*place);
        }
        let reads = self.number("limits.state_reads_per_second").and_then(NonZeroU32::new);
        limits.state_reads_per_second = reads.unwrap_or(limits.state_reads_per_second);
        let grace = self.number("limits.owner_grace_seconds");
        if cancels == Some(true) {
            let grace = Duration::from_secs(grace.unwrap_or(DEFAULT_OWNER_GRACE_SECONDS));
            limits.owners = OwnerPolicy::Cancel { grace };
        }
        limits.memory_bytes = self.memory_bytes(limits.body_bytes);
        limits
    }
}

#[cfg(test)]
mod tests;
