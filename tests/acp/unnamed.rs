//! `threadway acp` without a LangGraph server: what it says, and how a person logs in.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;

use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::support::editor::{CWD, Frames};
use crate::support::langgraph::{LangGraph, soon};

mod with_python;

const PROGRAM: &str = env!("CARGO_BIN_EXE_threadway");

/// What the key combination writes into a terminal.
const CTRL_C: &str = "\u{3}";

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// A configuration directory of one test, deleted on drop.
struct Home(PathBuf);

/// `threadway acp` as a process, and its client. Dropping it kills the process.
struct Agent {
    child: Child,
    /// `None` after the client has closed it.
    stdin: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
    frames: Frames,
    last: u64,
}

// === impl Home ===

impl Home {
    fn new(name: &str) -> Self {
        let name = format!("threadway-unnamed-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn stored(&self) -> PathBuf {
        self.0.join("threadway/credentials.toml")
    }

    /// A command that sees this directory and no settings of whoever runs the test.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_CONFIG_HOME", &self.0);
        for variable in ["UPSTREAM", "UPSTREAM_API_KEY", "CONFIG", "AGENT", "LOG"] {
            command.env_remove(format!("THREADWAY_{variable}"));
        }
        command
    }

    /// Runs `threadway acp` with these options in a terminal, and types each text once the one
    /// before it is shown. Returns the exit code and what the terminal showed.
    async fn types(&self, options: &[&str], steps: &[(&str, &str)]) -> (i32, String) {
        let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/terminal.py");
        let mut command = self.command("python3");
        command.arg(helper).arg(json!(steps).to_string()).args([PROGRAM, "acp"]).args(options);
        let output = ended(command).await;
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    async fn logs_in(&self, steps: &[(&str, &str)]) -> (i32, String) {
        self.types(&["--login"], steps).await
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn ended(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

// === impl Agent ===

impl Agent {
    fn start(home: &Home, options: &[&str]) -> Self {
        let mut command = home.command(PROGRAM);
        command.arg("acp").args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test may be over.
                let _ = sender.send(format!("{line}\n"));
            }
        });
        Self { child, stdin, lines, frames: Frames::default(), last: 0 }
    }

    /// An agent, and its answer to `initialize`.
    async fn initialized(home: &Home, options: &[&str], capabilities: Value) -> (Self, Value) {
        let mut agent = Self::start(home, options);
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let answer = agent.call("initialize", params).await;
        (agent, answer)
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            let line = soon("a line", self.lines.recv()).await.expect("the agent has ended");
            let frame = self.frames.comes(&line);
            if frame["method"] != "session/update" {
                return frame;
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.frames.sends(&message);
        self.write(&message.to_string());
        let frame = self.next().await;
        assert_eq!(frame["id"], id, "{frame}");
        frame
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let error = self.ask(method, params).await["error"].clone();
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// Closes stdin. The agent ends by itself, without an error.
    async fn ended(mut self) {
        self.stdin = None;
        let end = async { while self.lines.recv().await.is_some() {} };
        soon("the end", end).await;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terminal() -> Value {
    json!({"auth": {"terminal": true}})
}

fn new_session() -> Value {
    json!({"cwd": CWD, "mcpServers": []})
}

fn open_params() -> Value {
    json!({"sessionId": SESSION, "cwd": CWD, "mcpServers": []})
}

/// The server's URL as it is stored.
fn url(server: &LangGraph) -> String {
    server.url.trim_end_matches('/').to_owned()
}

fn no_server(options: &str) -> String {
    format!(
        "no LangGraph server is named yet: run `{PROGRAM} acp{options} --login` in a terminal, \
         which asks for the server's URL and key, or name one with --upstream or \
         THREADWAY_UPSTREAM in the editor's settings of this agent"
    )
}

// === before the login ===

#[tokio::test]
async fn an_agent_without_a_server_starts_and_offers_a_login() {
    let home = Home::new("starts");
    let mut agent = Agent::start(&home, &[]);
    let (code, message) = agent.refused("session/list", json!({})).await;
    assert_eq!((code, &*message), (-32600, "send `initialize` first"));
    let params = json!({"protocolVersion": 1, "clientCapabilities": terminal()});
    let answer = agent.call("initialize", params.clone()).await;
    let login = json!([{
        "type": "terminal", "id": "api-key", "name": "LangGraph server",
        "description": "Type the URL of your LangGraph server, and its key", "args": ["--login"],
    }]);
    assert_eq!(answer["authMethods"], login);
    assert_eq!(answer["agentCapabilities"]["auth"], json!({"logout": {}}));
    assert_eq!(answer["agentCapabilities"]["loadSession"], true);
    let (code, _) = agent.refused("initialize", params).await;
    assert_eq!(code, -32600);
    let prompt = json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "hi"}]});
    for (method, params) in [
        ("session/new", new_session()),
        ("session/load", open_params()),
        ("session/list", json!({})),
        ("session/prompt", prompt),
        ("session/delete", json!({"sessionId": SESSION})),
        ("authenticate", json!({"methodId": "api-key"})),
    ] {
        let refused = agent.refused(method, params).await;
        assert_eq!(refused, (-32000, no_server("")), "{method}");
    }
    assert_eq!(agent.call("logout", json!({})).await, json!({}));
    let (code, message) = agent.refused("no/such", json!({})).await;
    assert_eq!((code, &*message), (-32601, "unknown method `no/such`"));
    // These have no answer.
    agent.write(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}"#);
    agent.write(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    agent.write("{");
    assert_eq!(agent.next().await["error"]["code"], -32700);
    assert!(!home.stored().exists());
    agent.ended().await;
}

#[tokio::test]
async fn a_client_without_terminals_is_given_the_command() {
    let home = Home::new("command");
    let config = home.0.join("own settings.toml");
    std::fs::write(&config, "[acp]\nprompt = [\"image\"]\n").unwrap();
    let options = ["--config", config.to_str().unwrap()];
    let (mut agent, answer) = Agent::initialized(&home, &options, json!({})).await;
    let method = &answer["authMethods"][0];
    // Without a type it is one that the agent handles.
    assert_eq!(method.get("type"), None);
    let told = format!(" --config '{}'", config.display());
    let run = format!("Run `{PROGRAM} acp{told} --login` in a terminal");
    assert!(method["description"].as_str().unwrap().starts_with(&run), "{method}");
    assert_eq!(answer["agentCapabilities"]["promptCapabilities"]["image"], true);
    let refused = agent.refused("session/new", new_session()).await;
    assert_eq!(refused, (-32000, no_server(&told)));
    agent.ended().await;
}

// === the login ===

#[tokio::test]
async fn a_typed_server_that_does_not_answer_is_named_with_the_remedy() {
    let home = Home::new("moved");
    std::fs::create_dir_all(home.stored().parent().unwrap()).unwrap();
    std::fs::write(home.stored(), "upstream = \"http://127.0.0.1:1\"\n").unwrap();
    let (mut agent, answer) = Agent::initialized(&home, &[], json!({})).await;
    let method = answer["authMethods"][0]["description"].as_str().unwrap();
    assert!(method.starts_with("Run `threadway acp --login` in a terminal once"), "{method}");
    let why = "http://127.0.0.1:1 does not answer (connection refused): start the LangGraph server \
               there, or log in again with its present URL (`threadway acp --login`)";
    let refused = agent.refused("session/new", new_session()).await;
    assert_eq!(refused, (-32603, why.to_owned()));
    agent.ended().await;
}

#[tokio::test]
async fn a_login_without_a_terminal_names_both_variables() {
    let home = Home::new("no-terminal");
    let mut command = home.command(PROGRAM);
    command.args(["acp", "--login"]).stdin(Stdio::null());
    let output = ended(command).await;
    let told = "threadway: --login asks for the server's URL and key in a terminal, and there is \
                none: run it in a terminal, or set THREADWAY_UPSTREAM and \
                THREADWAY_UPSTREAM_API_KEY\n";
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), told);
}
