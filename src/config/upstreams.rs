//! The tables `upstream`, `upstreams` and `agents`: the servers, and aliases for their agents.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::front::is_https;
use super::raw::{self, ConfigError, Given, Raw};
use super::{DEFAULT_UPSTREAM, FallbackServer, Upstream};
use crate::agents::{MessagesKey, MessagesKeys};
use crate::upstream::{BaseUrl, BaseUrlError, Identity, MAX_ADDRESSES, NotAKey, NotTls, Tls};
use threadway_translate::langgraph::ParseMessagesKeyError;

/// Headers of requests to LangGraph that the gateway sets itself, or that describe one message or
/// one connection.
const NOT_CONFIGURED: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl Raw {
    /// Whether a server is named.
    pub(super) fn names_upstream(&self) -> bool {
        let is_url = |key: &String| {
            matches!(&**key, "upstream.url" | "upstream.urls") || key.starts_with("upstreams.")
        };
        self.given.keys().chain(&self.upstreams).any(is_url)
    }

    pub(super) fn upstreams(&mut self, unnamed: FallbackServer<'_>) -> Vec<Upstream> {
        match unnamed {
            FallbackServer::Refused => {}
            FallbackServer::Default(_) | FallbackServer::Allowed if self.names_upstream() => {}
            FallbackServer::Default(url) => {
                let url = Given::new("the server that `--login` has stored", &url.to_string());
                self.given.insert("upstream.url".to_owned(), url);
            }
            FallbackServer::Allowed => {
                // These keys belong to a server that is not known yet.
                self.take_all("upstream.");
                return Vec::new();
            }
        }
        let of_upstream = |key: &String| raw::of_upstream(key).map(|(prefix, _)| prefix.to_owned());
        let given = self.given.keys().filter_map(of_upstream);
        let empty = self.upstreams.iter().filter(|prefix| prefix.starts_with("upstreams."));
        let mut prefixes: Vec<_> = given.chain(empty.cloned()).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        // In the order of the file.
        prefixes.sort_by_key(|prefix| self.upstreams.iter().position(|known| known == prefix));
        if prefixes.is_empty() {
            self.note(missing_upstream());
        }
        if let [one, other, ..] = prefixes.as_slice()
            && one == "upstream"
        {
            let expected = "either `upstream` or `upstreams.NAME`, not both".to_owned();
            self.note(ConfigError { place: format!("`{other}`"), value: None, expected });
        }
        prefixes.iter().filter_map(|prefix| self.upstream(prefix)).collect()
    }

    fn upstream(&mut self, prefix: &str) -> Option<Upstream> {
        let name = prefix.strip_prefix("upstreams.").unwrap_or(DEFAULT_UPSTREAM);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !name.bytes().all(is_plain) {
            let expected = "a name of letters, digits, `-` and `_`".to_owned();
            self.note(ConfigError { place: format!("`{prefix}`"), value: None, expected });
        }
        let urls = self.urls(prefix);
        let urls = self.keep(urls);
        if let Some((url, others)) = &urls {
            let is_tls = std::iter::once(url).chain(others).any(|url| is_https(&url.to_string()));
            self.refuse_certificates_without_tls(prefix, is_tls);
        }
        let api_key = self.take(&format!("{prefix}.api_key"));
        let api_key = api_key.and_then(|given| {
            let key = given.value.parse();
            self.keep(key.map_err(|error: NotAKey| given.hidden(error.to_string())))
        });
        let headers = self.headers(prefix, api_key.is_some());
        let words = [("true", Identity::Forwarded), ("false", Identity::Withheld)];
        let identity = self.word(&format!("{prefix}.forward_identity"), &words);
        let mut tls = Tls::default();
        self.read_pem(&format!("{prefix}.ca_file"), &mut tls, Tls::trust);
        let key = format!("{prefix}.client_certificate_file");
        self.read_pem(&key, &mut tls, Tls::present);
        let messages_key = self.take(&format!("{prefix}.messages_key"));
        let messages_key = messages_key.and_then(|given| self.keep(messages_key_of(given)));
        let (url, other_urls) = urls?;
        Some(Upstream {
            name: name.to_owned(),
            url,
            other_urls,
            api_key,
            headers,
            identity,
            messages_key: messages_key.unwrap_or_default(),
            tls,
        })
    }

    /// The headers of each request to a server.
    fn headers(&mut self, prefix: &str, has_key: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, given) in self.take_all(&format!("{prefix}.headers.")) {
            match (name.parse::<HeaderName>(), HeaderValue::from_str(&given.value)) {
                (Ok(name), Ok(_)) if NOT_CONFIGURED.contains(&name.as_str()) => {
                    self.note(given.hidden("a header that the gateway does not set itself"));
                }
                (Ok(name), Ok(_)) if headers.contains_key(&name) => {
                    self.note(given.hidden("each header once; its name is in two spellings"));
                }
                (Ok(name), Ok(_)) if has_key && name == "x-api-key" => {
                    let expected = format!("either this header or `{prefix}.api_key`, not both");
                    self.note(given.hidden(expected));
                }
                (Ok(name), Ok(mut value)) if !value.is_empty() => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                _ => self.note(given.hidden("a valid header name and value")),
            }
        }
        headers
    }

    /// Notes the certificates for a server that is reached without TLS: nobody would check them.
    fn refuse_certificates_without_tls(&mut self, prefix: &str, is_tls: bool) {
        for key in ["ca_file", "client_certificate_file"] {
            if !is_tls && let Some(given) = self.take(&format!("{prefix}.{key}")) {
                let expected = format!(
                    "a server whose `url` begins with https://: without TLS `{key}` has no effect"
                );
                self.note(given.mistaken(expected));
            }
        }
    }

    /// The addresses of a server, the first and the others: that of `url`, or those of `urls`.
    fn urls(&mut self, prefix: &str) -> Result<(BaseUrl, Vec<BaseUrl>), ConfigError> {
        let [one, several] = ["url", "urls"].map(|key| self.take(&format!("{prefix}.{key}")));
        match (one, several) {
            (Some(_), Some(several)) => {
                let expected = format!("either `{prefix}.url` or `{prefix}.urls`, not both");
                Err(several.hidden(expected))
            }
            (Some(url), None) if url.value.contains(",http") => {
                Err(url.hidden("one URL; `urls` in the config file takes several"))
            }
            (Some(url), None) => Ok((base_url(url)?, Vec::new())),
            (None, Some(several)) => base_urls(&several),
            (None, None) if prefix == "upstream" => Err(missing_upstream()),
            (None, None) => {
                let place = format!("`{prefix}.url`");
                let expected = "the URL of the LangGraph server".to_owned();
                Err(ConfigError { place, value: None, expected })
            }
        }
    }

    /// The messages keys of agents that set one.
    pub(super) fn messages_keys(&mut self) -> MessagesKeys {
        let mut keys = MessagesKeys::new();
        for (name, given) in self.take_all("agents.") {
            match name.strip_suffix(".messages_key") {
                Some(agent) if !agent.is_empty() => {
                    let key = self.keep(messages_key_of(given));
                    keys.extend(key.map(|key| (agent.to_owned(), key)));
                }
                // An alias, which is read elsewhere.
                Some(_) | None => {
                    self.given.insert(format!("agents.{name}"), given);
                }
            }
        }
        keys
    }

    /// Reads a PEM file that a key names.
    pub(super) fn read_pem(
        &mut self,
        key: &str,
        tls: &mut Tls,
        take: fn(&mut Tls, &[u8]) -> Result<(), NotTls>,
    ) {
        let Some(given) = self.take(key) else { return };
        let text = self.read_named(&given, |path| std::fs::read(path));
        let taken = text
            .and_then(|text| take(tls, &text).map_err(|error| given.mistaken(error.to_string())));
        self.keep(taken);
    }

    pub(super) fn aliases(&mut self, upstreams: &[Upstream]) -> Vec<(String, String)> {
        let own_name = |value: &str| match upstreams {
            [] | [_] => true,
            several => value
                .split_once(':')
                .is_some_and(|(name, _)| several.iter().any(|upstream| upstream.name == name)),
        };
        let mut aliases = Vec::new();
        for (key, given) in self.take_all("agents.") {
            // A table may hold more than the agent's name.
            let alias = key.strip_suffix(".agent").map_or_else(|| key.clone(), str::to_owned);
            if alias.is_empty() || alias.contains('/') {
                self.note(given.hidden("a name without `/`"));
            } else if given.value.is_empty() {
                self.note(given.hidden("the name of the agent that the alias stands for"));
            } else if own_name(&given.value) {
                aliases.push((alias, given.value));
            } else {
                let names = upstreams.iter().map(|upstream| format!("`{}:..`", upstream.name));
                let names = names.collect::<Vec<_>>().join(" or ");
                self.note(given.mistaken(format!("an agent of an upstream: {names}")));
            }
        }
        aliases
    }
}

fn messages_key_of(given: Given) -> Result<MessagesKey, ConfigError> {
    given.value.parse().map_err(|error: ParseMessagesKeyError| given.mistaken(error.to_string()))
}

/// Reads the URL of a server.
pub(super) fn base_url(given: Given) -> Result<BaseUrl, ConfigError> {
    given.value.parse().map_err(|error: BaseUrlError| {
        // Parts that do not belong there may hold a password.
        let is_shown = !given.value.contains(['@', '?', '#']);
        if is_shown { given.mistaken(error.to_string()) } else { given.hidden(error.to_string()) }
    })
}

/// Reads the addresses of one server.
fn base_urls(given: &Given) -> Result<(BaseUrl, Vec<BaseUrl>), ConfigError> {
    let items: Vec<_> = given.value.split(',').collect();
    let wrong = || given.clone().hidden(format!("a list of 1 to {MAX_ADDRESSES} URLs"));
    if given.value.is_empty() || items.len() > MAX_ADDRESSES {
        return Err(wrong());
    }
    let mut urls: Vec<BaseUrl> = Vec::new();
    for item in items {
        let item = Given::new(&given.place, item);
        let url = base_url(item.clone())?;
        // With and without a slash at the end it is the same address.
        if urls.iter().any(|known| known.to_string() == url.to_string()) {
            return Err(item.mistaken("each URL once"));
        }
        urls.push(url);
    }
    let mut urls = urls.into_iter();
    Ok((urls.next().ok_or_else(wrong)?, urls.collect()))
}

fn missing_upstream() -> ConfigError {
    ConfigError {
        place: "--upstream".to_owned(),
        value: None,
        expected: "the URL of the LangGraph server, such as --upstream http://127.0.0.1:2024 (or \
                   THREADWAY_UPSTREAM, or `upstream.url` in the config file)"
            .to_owned(),
    }
}
