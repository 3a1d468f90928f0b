//! `threadway acp --init` writes a config file with modes for editors.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::first_steps::{Server, ended, stderr, stdout};
use toml::{Table, Value};

/// A directory of one test, deleted on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let name = format!("threadway-init-{}-{test}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn init(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_threadway"));
        command.args(["acp", "--init"]).args(args).env_clear().current_dir(&self.0);
        command.output().unwrap()
    }

    fn read(&self, file: &str) -> Table {
        fs::read_to_string(self.0.join(file)).unwrap().parse().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn the_file_has_four_modes_and_is_a_valid_configuration() {
    let server = Server::answering(200).await;
    let directory = Directory::new("modes");
    let output = directory.init(&["--upstream", &server.url, "--agent", "agent"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    assert!(stderr(&output).contains("threadway.toml has four modes"), "{}", stderr(&output));
    let written = directory.read("threadway.toml");
    assert_eq!(written["upstream"]["url"].as_str(), Some(&*server.url));
    assert_eq!(written["acp"]["agent"].as_str(), Some("agent"));
    let modes = written["acp"]["modes"].as_table().unwrap();
    let names: Vec<_> = modes.values().filter_map(|mode| mode["name"].as_str()).collect();
    assert_eq!(names, ["Ask", "Accept edits", "Plan", "Bypass permissions"]);
    let rule =
        |mode: &str, tool: &str| modes[mode]["permissions"].get(tool).and_then(Value::as_str);
    assert_eq!(rule("ask", "*"), Some("ask"));
    assert_eq!(rule("accept_edits", "write_*"), Some("allow"));
    assert_eq!(rule("plan", "*"), Some("reject"));
    assert_eq!(rule("bypass", "*"), Some("allow"));
    assert!(modes["plan"]["configurable"]["allowed_tools"].is_array());
    let file = directory.0.join("threadway.toml");
    let checked = ended(&["check", "--config", file.to_str().unwrap()], &[]).await;
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
}

#[test]
fn an_existing_file_is_not_changed() {
    let directory = Directory::new("existing");
    fs::write(directory.0.join("mine.toml"), "log = \"info\"\n").unwrap();
    let output = directory.init(&["--config", "mine.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("mine.toml exists and is not changed"), "{}", stderr(&output));
    assert_eq!(directory.read("mine.toml").len(), 1);
    // Without a server the file names none, and no key is ever written.
    let output = directory.init(&["--config", "other.toml", "--upstream-api-key", "s3cret"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(directory.0.join("other.toml")).unwrap();
    assert!(!text.contains("s3cret") && !text.parse::<Table>().unwrap().contains_key("upstream"));
    let output = directory.init(&["--config", "nowhere/other.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot be written"), "{}", stderr(&output));
    // A mistake leaves no file.
    let output = directory.init(&["--upstream", "localhost"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(!directory.0.join("threadway.toml").exists());
}
