//! The upstream's key, if a person has to give it: ACP's `authenticate` and `logout`.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
};

use super::link::ClientLink;
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json::Json;

/// How long `initialize` waits to learn whether the upstream requires a key.
const KEY_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The id of the authentication method.
pub(super) const API_KEY: &str = "api-key";

impl ClientLink {
    /// The ways in which a person can give the key, or type another server in place of a typed one.
    pub(super) fn auth_methods(&self) -> Vec<AuthMethod> {
        if !self.has_login() {
            return Vec::new();
        }
        let server = self.service().upstream.client.base();
        let credentials = &self.service().credentials;
        let (name, asked) = if credentials.is_server_typed() {
            let asked =
                format!("Type the URL of your LangGraph server (now {server}), and its key");
            ("LangGraph server", asked)
        } else {
            ("LangGraph API key", format!("Type the key of {server}"))
        };
        if self.client().has_terminal_login {
            let method = AuthMethodTerminal::new(API_KEY, name)
                .description(asked)
                .args(vec!["--login".to_owned()]);
            return vec![AuthMethod::Terminal(method)];
        }
        let login = credentials.login_command();
        let method = AuthMethodAgent::new(API_KEY, name).description(format!(
            "Run `{login}` in a terminal once, or set \
             THREADWAY_UPSTREAM_API_KEY in the editor's settings of this agent"
        ));
        vec![AuthMethod::Agent(method)]
    }

    fn has_login(&self) -> bool {
        self.wants_key() || self.service().credentials.is_server_typed()
    }

    /// Whether the upstream requires a key that a person has to give. False if it does not answer.
    pub(super) async fn upstream_wants_key(&self) -> bool {
        let listed = self.service().upstream.client.assistants(None);
        match tokio::time::timeout(KEY_PROBE_TIMEOUT, listed).await {
            Ok(Err(error)) => error.is_unauthorized(),
            Ok(Ok(_)) => self.service().credentials.has_key(),
            Err(_) => false,
        }
    }

    pub(super) async fn authenticate(&self, request: &AuthenticateRequest) -> Result<Json, Error> {
        if !self.has_login() || &*request.method_id.0 != API_KEY {
            let message = format!(
                "unknown authentication method `{}`; `initialize` lists the methods",
                request.method_id.0
            );
            return Err(Error::new(Code::InvalidParams, message));
        }
        let upstream = &self.service().upstream.client;
        if let Some(key) = self.service().credentials.key() {
            upstream.use_key(Some(key));
        }
        upstream.assistants(None).await.map_err(|error| self.failed(&error))?;
        Ok(Json::empty_object())
    }

    /// Forgets the key that a person has typed. Refused where it is not offered: the key that the
    /// configuration gives could not be typed again.
    pub(super) fn logout(&self) -> Result<Json, Error> {
        if !self.wants_key() {
            let message = "`logout` is not offered here: no key is stored; a key of the command \
                           line, the environment or the config file is removed there";
            return Err(Error::new(Code::MethodNotFound, message));
        }
        self.service().credentials.delete().map_err(|error| Error::internal(error.to_string()))?;
        self.service().upstream.client.use_key(None);
        Ok(Json::empty_object())
    }
}
