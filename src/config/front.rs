//! The keys about callers: authentication, origins, limits, and what is forwarded and returned.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::Upstream;
use super::raw::{AUTH_KEYS, ConfigError, Given, Raw};
use crate::server::{
    Auth, Compression, Cors, CorsError, Credentials, DEFAULT_SKEW, ForwardedHeaders, HostName, Jwt,
    JwtError, JwtSettings, Keys, KeysError, KeysFrom, NotAHostName, NotForwarded, Page, Rates,
    RequestRate, ThreadRoutePolicy, Trust, UpstreamAuth,
};
use crate::upstream::{Identity, KeySetUrl, NotAKeySetUrl, OnThreadNotFound, Tls};
use threadway_translate::agui::{
    Allowance, LostThread, NotSettableByClients, OnMessage, SystemMessages,
};
use threadway_translate::langgraph::{ErrorDetail, Multitask};

/// The headers by which LangGraph authenticates.
const CREDENTIALS: [&str; 2] = ["authorization", "x-api-key"];

/// The words of `auth.mode`, and the keys that only this mode uses.
const OF_MODE: [(&str, AuthMode, &[&str]); 4] = [
    ("none", AuthMode::None, &[]),
    ("bearer", AuthMode::Bearer, &[AUTH_KEYS, "auth.keys_file"]),
    (
        "jwt",
        AuthMode::Jwt,
        &[
            "auth.jwks",
            "auth.jwks_ca_file",
            "auth.issuer",
            "auth.audience",
            "auth.clock_skew_seconds",
        ],
    ),
    ("upstream", AuthMode::Upstream, &["auth.credential_header"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthMode {
    None,
    Bearer,
    Jwt,
    Upstream,
}

impl Raw {
    /// How callers are authenticated. `trust` says whether an upstream must first prove that it
    /// refuses strangers.
    pub(super) fn auth(
        &mut self,
        upstreams: &[Upstream],
        forward: &ForwardedHeaders,
        trust: Trust,
    ) -> Option<Auth> {
        let given = self.take("auth.mode").unwrap_or_else(|| Given::new("`auth.mode`", "none"));
        let words = OF_MODE.map(|(word, mode, _)| (word, mode));
        let mode = self.keep(given.clone().one_of(&words));
        if let Some(mode) = mode {
            self.refuse_keys_of_other_modes(mode);
        }
        let credential = self.credential_header(forward);
        let keys = self.keys();
        let mode = mode?;
        let jwt = self.jwt(mode);
        match mode {
            AuthMode::None => Some(Auth::None),
            AuthMode::Upstream => {
                for (place, upstream) in upstreams.iter().enumerate() {
                    let Upstream { name, api_key, headers, .. } = upstream;
                    if upstream.identity_at(place) == Identity::Withheld {
                        let expected = format!(
                            "callers' own credentials to be sent to every upstream, since only \
                             LangGraph checks them; the upstream `{name}` is not sent them: set \
                             `forward_identity = true` in its table, or choose another mode"
                        );
                        self.note(given.clone().mistaken(expected));
                    }
                    if api_key.is_some() || CREDENTIALS.iter().any(|c| headers.contains_key(*c)) {
                        let expected = format!(
                            "callers' own credentials; those configured for the upstream `{name}` \
                             would let everyone in: leave them out, or choose another mode"
                        );
                        self.note(given.clone().mistaken(expected));
                    }
                }
                Some(Auth::Upstream(UpstreamAuth { credential, trust }))
            }
            AuthMode::Bearer if keys.is_empty() => {
                let expected = "keys: `auth.keys.NAME` or `auth.keys_file` in the config file, or \
                                THREADWAY_AUTH_KEYS=NAME=KEY";
                self.keep(Err(given.mistaken(expected)))
            }
            AuthMode::Bearer => {
                let text: Vec<_> = keys.iter().map(|given| &*given.value).collect();
                let parsed = text.join("\n").parse::<Keys>();
                let wrong = |error: KeysError| {
                    let places: Vec<_> = keys.iter().map(|given| &*given.place).collect();
                    let place = places.join(", ");
                    ConfigError { place, value: None, expected: error.to_string() }
                };
                self.keep(parsed.map_err(wrong)).map(Auth::Bearer)
            }
            AuthMode::Jwt => {
                for Upstream { name, .. } in unsaid(upstreams) {
                    let expected = format!(
                        "`forward_identity` in the table of the upstream `{name}`: with `true` \
                         each caller's token is sent there too; with `false` every caller sees \
                         every thread there"
                    );
                    self.note(given.clone().mistaken(expected));
                }
                let settings = jwt?;
                let checked = Jwt::new(&settings).map_err(|error| jwt_mistake(&error));
                self.keep(checked).map(Auth::Jwt)
            }
        }
    }

    /// Notes the keys that another mode than the chosen one uses. Who sets them believes that callers
    /// are authenticated by them. A key with several names is noted once.
    fn refuse_keys_of_other_modes(&mut self, chosen: AuthMode) {
        for (word, _, keys) in OF_MODE.iter().filter(|(_, mode, _)| *mode != chosen) {
            for key in *keys {
                let several = self.take_all(&format!("{key}."));
                let one = self.take(key);
                let Some(given) =
                    one.or_else(|| several.into_iter().next().map(|(_, given)| given))
                else {
                    continue;
                };
                let open = match chosen {
                    AuthMode::None => "none, which lets everyone in",
                    AuthMode::Bearer => "bearer",
                    AuthMode::Jwt => "jwt",
                    AuthMode::Upstream => "upstream",
                };
                self.note(given.hidden(format!(
                    "`auth.mode` {word}, the only mode that uses this key; `auth.mode` is {open}: \
                     choose the mode, or leave the key out"
                )));
            }
        }
    }

    /// The header by which LangGraph authenticates.
    fn credential_header(&mut self, forward: &ForwardedHeaders) -> Option<HeaderName> {
        let given = self.take("auth.credential_header")?;
        let name = given.value.parse().ok().filter(|name| forward.identifies_by(name));
        let expected = "authorization, x-api-key, or one of `forward_headers`";
        self.keep(name.ok_or_else(|| given.mistaken(expected)))
    }

    /// What clients may set. Without `auth`, `is_open`, a lost conversation is restored.
    pub(super) fn allowance(&mut self, is_open: bool) -> Allowance {
        let mut allowance = Allowance::default();
        let words = [("restore", LostThread::Restore), ("newest", LostThread::Newest)];
        let lost = self.word("input.lost_thread", &words);
        let by_default = if is_open { LostThread::Restore } else { LostThread::Newest };
        allowance.when_lost(lost.unwrap_or(by_default));
        if let Some(given) = self.take("forward_configurable") {
            for key in given.items() {
                let wrong = |error: NotSettableByClients| {
                    Given::new(&given.place, key).mistaken(error.to_string())
                };
                self.keep(allowance.allow(key).map_err(wrong));
            }
        }
        if let Some(most) = self.number("limits.recursion_limit") {
            allowance.limit_recursion(most);
        }
        if let Some(multitask) = self.word("multitask_strategy", &Multitask::WORDS) {
            allowance.when_busy(multitask);
        }
        let listed = self.take("forward_multitask_strategies");
        for word in
            listed.iter().flat_map(|given| given.items().map(|word| Given::new(&given.place, word)))
        {
            if let Some(multitask) = self.keep(word.one_of(&Multitask::WORDS)) {
                allowance.allow_when_busy(multitask);
            }
        }
        let words = [("send", SystemMessages::Send), ("drop", SystemMessages::Drop)];
        if let Some(policy) = self.word("input.system_messages", &words) {
            allowance.take_system_messages(policy);
        }
        allowance
    }

    /// The keys of callers from all places, as lines of `NAME=KEY`.
    fn keys(&mut self) -> Vec<Given> {
        let mut keys: Vec<_> = self.take(AUTH_KEYS).into_iter().collect();
        for (name, given) in self.take_all("auth.keys.") {
            // A second key in the value would count as another name's.
            if given.value.contains([',', '\n', '\r']) {
                self.note(given.hidden("one key, without commas and line ends"));
                continue;
            }
            let value = format!("{name}={}", given.value);
            keys.push(Given { value, ..given });
        }
        if let Some(file) = self.take("auth.keys_file") {
            let text = self.read_named(&file, |path| std::fs::read_to_string(path));
            let place = format!("{} ({})", file.place, file.value);
            keys.extend(self.keep(text.map(|text| Given::new(&place, &text))));
        }
        keys
    }

    /// How tokens are verified, in mode `jwt`.
    fn jwt(&mut self, mode: AuthMode) -> Option<JwtSettings> {
        let skew = self.number("auth.clock_skew_seconds").map(Duration::from_secs);
        let keys = self.take("auth.jwks");
        let issuer = self.take("auth.issuer").map(|given| given.value).unwrap_or_default();
        let audience = self.take("auth.audience");
        let audiences = audience.iter().flat_map(Given::items).map(str::to_owned).collect();
        let mut tls = Tls::default();
        if keys.as_ref().is_some_and(|keys| !is_https(&keys.value))
            && let Some(authority) = self.take("auth.jwks_ca_file")
        {
            let expected = "an https:// URL in `auth.jwks`: only such a server has a certificate";
            self.note(authority.mistaken(expected));
        }
        self.read_pem("auth.jwks_ca_file", &mut tls, Tls::trust);
        let keys = match keys {
            Some(given) if given.value.contains("://") => {
                let url = given.value.parse::<KeySetUrl>();
                let wrong = |error: NotAKeySetUrl| given.hidden(error.to_string());
                let url = self.keep(url.map_err(wrong))?;
                KeysFrom::Url { url, tls }
            }
            Some(given) => {
                let path = PathBuf::from(given.value);
                self.files.push(path.clone());
                KeysFrom::File(path)
            }
            None => {
                if let AuthMode::Jwt = mode {
                    let expected = "a file or a URL with the keys that sign the tokens".to_owned();
                    let place = "`auth.jwks`".to_owned();
                    self.note(ConfigError { place, value: None, expected });
                }
                return None;
            }
        };
        Some(JwtSettings { keys, issuer, audiences, skew: skew.unwrap_or(DEFAULT_SKEW) })
    }

    pub(super) fn forward(&mut self) -> ForwardedHeaders {
        let mut forward = ForwardedHeaders::default();
        if let Some(given) = self.take("forward_headers") {
            for name in given.items() {
                let wrong = |error: NotForwarded| {
                    Given::new(&given.place, name).mistaken(error.to_string())
                };
                self.keep(forward.allow(name).map_err(wrong));
            }
        }
        let words = [("empty", OnThreadNotFound::Empty), ("refused", OnThreadNotFound::Refused)];
        if let Some(unknown) = self.word("auth.unknown_threads", &words) {
            forward.set_unknown(unknown);
        }
        forward
    }

    pub(super) fn hosts(&mut self) -> Vec<HostName> {
        let Some(given) = self.take("hosts") else { return Vec::new() };
        let named = given.items().filter_map(|name| {
            let wrong =
                |error: NotAHostName| Given::new(&given.place, name).mistaken(error.to_string());
            self.keep(name.parse().map_err(wrong))
        });
        named.collect()
    }

    pub(super) fn error_detail(&mut self) -> ErrorDetail {
        let words = [
            ("full", ErrorDetail::Full),
            ("message", ErrorDetail::Message),
            ("code", ErrorDetail::Code),
            ("none", ErrorDetail::None),
        ];
        self.word("error_detail", &words).unwrap_or_default()
    }

    pub(super) fn on_message(&mut self) -> OnMessage {
        let words = [("ask_again", OnMessage::AskAgain), ("reject", OnMessage::Reject)];
        self.word("on_message_while_interrupted", &words).unwrap_or_default()
    }

    pub(super) fn compression(&mut self) -> Compression {
        let words = [("off", Compression::Off), ("on", Compression::On)];
        self.word("compression", &words).unwrap_or_default()
    }

    /// Whether the page is served. The default is `is_private`.
    pub(super) fn page(&mut self, is_private: bool) -> Page {
        let given = self.take("page").map(|given| given.parse("`true` or `false`"));
        let is_on = given.and_then(|given| self.keep(given)).unwrap_or(is_private);
        if is_on { Page::On } else { Page::Off }
    }

    /// Who may list, change and inspect threads. `is_shared` says whether callers on other machines
    /// reach the gateway.
    pub(super) fn thread_routes(
        &mut self,
        auth: Option<&Auth>,
        is_shared: bool,
    ) -> ThreadRoutePolicy {
        let words = [
            ("callers", ThreadRoutePolicy::Callers),
            ("all", ThreadRoutePolicy::All),
            ("off", ThreadRoutePolicy::Off),
        ];
        let routes = self.word("thread_routes", &words);
        match (routes.unwrap_or(ThreadRoutePolicy::Callers), auth) {
            // All callers are on this machine.
            (ThreadRoutePolicy::Callers, Some(Auth::None)) if !is_shared => ThreadRoutePolicy::All,
            (ThreadRoutePolicy::Callers, None | Some(Auth::None | Auth::Bearer(_))) => {
                ThreadRoutePolicy::Off
            }
            (routes, _) => routes,
        }
    }

    pub(super) fn cors(&mut self) -> Cors {
        let given = self.take("cors.origins").unwrap_or_else(|| Given::new("`cors.origins`", ""));
        let credentials = if self.is_on("cors.credentials") {
            Credentials::Included
        } else {
            Credentials::Omitted
        };
        self.keep(given.cors(credentials)).unwrap_or_default()
    }

    pub(super) fn rates(&mut self) -> Rates {
        if !self.given.contains_key("limits.requests_per_second")
            && let Some(burst) = self.take("limits.request_burst")
        {
            let expected = "`limits.requests_per_second` beside it: without a rate there is no \
                            limit, and no burst";
            self.note(burst.mistaken(expected));
        }
        let per_second = self.number("limits.requests_per_second");
        let burst = self.number("limits.request_burst").and_then(NonZeroU32::new);
        let streams = self.number("limits.streams_per_caller");
        Rates {
            requests: per_second
                .and_then(NonZeroU32::new)
                .map(|per_second| RequestRate { per_second, burst: burst.unwrap_or(per_second) }),
            streams: streams.and_then(NonZeroUsize::new),
        }
    }
}

impl Given {
    /// Which pages may call: `*`, or a list of origins.
    pub(super) fn cors(&self, credentials: Credentials) -> Result<Cors, ConfigError> {
        let wrong = |error: CorsError| self.clone().mistaken(error.to_string());
        Cors::new(self.items(), credentials).map_err(wrong)
    }
}

/// Whether the text is a URL of a server with a certificate.
pub(super) fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// The upstreams after the first without `forward_identity`.
fn unsaid(upstreams: &[Upstream]) -> impl Iterator<Item = &Upstream> {
    upstreams.iter().skip(1).filter(|upstream| upstream.identity.is_none())
}

/// The mistake for an error of the token settings. None of them is a secret.
fn jwt_mistake(error: &JwtError) -> ConfigError {
    let key = match error {
        JwtError::NoIssuer => "auth.issuer",
        JwtError::NoAudience => "auth.audience",
        JwtError::Skew => "auth.clock_skew_seconds",
        JwtError::File { .. } | JwtError::Keys { .. } | JwtError::Setup(_) => "auth.jwks",
    };
    ConfigError { place: format!("`{key}`"), value: None, expected: error.to_string() }
}
