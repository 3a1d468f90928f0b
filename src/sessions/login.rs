//! A connection whose upstream nobody has named yet. A person types its URL in a terminal, with
//! `threadway acp --login`. Until then the client learns how to log in, and sessions are refused.

use std::fmt;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{AuthMethod, AuthMethodAgent, AuthMethodTerminal};

use super::auth::API_KEY;
use super::client::ClientAbilities;
use super::link::Work;
use super::{Authentication, Connection, LineHandler, Outbox, Service, Settings};
use threadway_translate::acp::destination::Destination;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Code, Error, Id, Incoming};
use threadway_translate::json::Json;

/// Looks for the upstream that a person may have typed by now. The error says what is wrong with
/// the configuration.
type Find = Box<dyn Fn() -> Result<Option<Arc<Service>>, String> + Send + Sync>;

/// The parts of a [`LoginConnection`].
pub struct LoginOptions {
    /// Looks for the upstream: `None` until a person has typed it.
    pub find: Find,
    /// How ACP presents the agents.
    pub settings: Settings,
    /// The command that asks for the upstream, as a person can type it.
    pub login: String,
}

/// A connection that waits for its upstream, and then is a [`Connection`]. It looks for the
/// upstream at each request that needs one, so that no restart is necessary after the login.
pub struct LoginConnection {
    options: LoginOptions,
    outbox: Outbox,
    /// Set by `initialize`.
    client: OnceLock<ClientAbilities>,
    /// Set once the upstream is known.
    served: OnceLock<Connection>,
}

/// How a request is handled.
enum LoginStep {
    Answer(Json),
    /// The upstream is known: its connection handles this request and all later ones.
    PassOn(Connection),
}

// === impl LoginConnection ===

impl LoginConnection {
    /// A connection on which nothing has been sent yet.
    pub fn new(options: LoginOptions, outbox: Outbox) -> Self {
        Self { options, outbox, client: OnceLock::new(), served: OnceLock::new() }
    }

    fn step(&self, method: &str, params: &Json) -> Result<LoginStep, Error> {
        let Some(abilities) = self.client.get() else {
            return self.begin(method, params);
        };
        let known = Method::of(method);
        if known == Some(Method::Initialize) {
            return Err(Error::invalid("the connection is initialized already"));
        }
        let found = (self.options.find)().map_err(Error::internal)?;
        if let Some(service) = found {
            let connection = Connection::continued(service, self.outbox.clone(), *abilities);
            return Ok(LoginStep::PassOn(self.served.get_or_init(|| connection).clone()));
        }
        match known {
            // There is nothing to forget.
            Some(Method::Logout) => Ok(LoginStep::Answer(Json::empty_object())),
            _ if known == Some(Method::Authenticate) || method.starts_with("session/") => {
                let login = &self.options.login;
                let message = format!(
                    "no LangGraph server is named yet: run `{login}` in a terminal, which asks for \
                     the server's URL and key, or name one with --upstream or THREADWAY_UPSTREAM \
                     in the editor's settings of this agent"
                );
                Err(Error::new(Code::AuthRequired, message))
            }
            _ => Err(Error::new(Code::MethodNotFound, format!("unknown method `{method}`"))),
        }
    }

    fn begin(&self, method: &str, params: &Json) -> Result<LoginStep, Error> {
        if Method::of(method) != Some(Method::Initialize) {
            return Err(Error::invalid("send `initialize` first"));
        }
        let abilities = Connection::abilities(params)?;
        let abilities = self.client.get_or_init(|| abilities);
        let methods = vec![self.auth_method(*abilities)];
        let settings = &self.options.settings;
        // Without an upstream, the model is unknown.
        let accepts = settings.accepts.unwrap_or_default();
        Connection::initialized(settings, accepts, true, methods, &Authentication::Key)
            .map(LoginStep::Answer)
    }

    fn auth_method(&self, client: ClientAbilities) -> AuthMethod {
        let name = "LangGraph server";
        if client.has_terminal_login {
            let method = AuthMethodTerminal::new(API_KEY, name)
                .description("Type the URL of your LangGraph server, and its key")
                .args(vec!["--login".to_owned()]);
            return AuthMethod::Terminal(method);
        }
        let login = &self.options.login;
        let description = format!(
            "Run `{login}` in a terminal once: it asks for the URL of your LangGraph server, and \
             for its key"
        );
        AuthMethod::Agent(AuthMethodAgent::new(API_KEY, name).description(description))
    }

    fn respond(&self, id: &Id, result: &Result<Json, Error>) {
        let line = rpc::response(id, result);
        self.outbox.put(Destination::Connection, |out| out.extend_from_slice(line.as_bytes()));
    }
}

impl LineHandler for LoginConnection {
    fn take(&self, line: &[u8]) -> Option<Work> {
        if let Some(connection) = self.served.get() {
            return connection.take(line);
        }
        match Incoming::parse(line) {
            Ok(Incoming::Request { id, method, params }) => match self.step(&method, &params) {
                Ok(LoginStep::PassOn(connection)) => return connection.take(line),
                Ok(LoginStep::Answer(answer)) => self.respond(&id, &Ok(answer)),
                Err(error) => {
                    tracing::debug!(method, code = ?error.code, reason = error.message, "refused");
                    self.respond(&id, &Err(error));
                }
            },
            // There is no session to which these could belong.
            Ok(Incoming::Notification { .. } | Incoming::Response { .. }) => {}
            Err(malformed) => self.respond(&malformed.id, &Err(malformed.error)),
        }
        None
    }

    fn refuse_line(&self, limit: usize) {
        let message =
            format!("the line is longer than {limit} bytes and was ignored; send shorter messages");
        self.respond(&Id::NULL, &Err(Error::invalid(message)));
    }

    fn hang_up(&self) {
        if let Some(connection) = self.served.get() {
            connection.hang_up();
        }
    }

    fn service(&self) -> Option<Arc<Service>> {
        self.served.get().and_then(LineHandler::service)
    }
}

impl fmt::Debug for LoginConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginConnection").field("service", &self.service()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LoginOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginOptions").field("login", &self.login).finish_non_exhaustive()
    }
}
