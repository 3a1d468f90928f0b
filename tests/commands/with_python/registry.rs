//! The entry for the ACP registry, by the rules of the registry's CI: the form of `agent.json`, the
//! icon, and a start without any configuration.
//!
//! `acp-registry.json` is `agent.schema.json` of github.com/agentclientprotocol/registry at commit
//! 172d503, under the Apache License 2.0. Later versions of it require `license_url` and a version
//! of exactly three numbers, which the test checks itself.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A temporary directory, deleted on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("threadway-registry-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The entry as a release builds it, in a directory of this name: `agent.json` and the icon.
fn entry(name: &str) -> (Value, String) {
    let out = Directory::new(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut release = Command::new("python3");
    release.arg(root.join("packaging/release")).args(["--snapshot", "--out"]).arg(&out.0);
    let built = release.arg("registry").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let read =
        |name: &str| std::fs::read_to_string(out.0.join("registry/threadway").join(name)).unwrap();
    (serde_json::from_str(&read("agent.json")).unwrap(), read("icon.svg"))
}

#[test]
fn the_entry_has_the_form_that_the_registry_demands() {
    let (agent, icon) = entry("entry");
    let schema: Value =
        serde_json::from_str(include_str!("../../support/acp-registry.json")).unwrap();
    let schema = jsonschema::draft7::options().should_validate_formats(true).build(&schema);
    let schema = schema.unwrap();
    let faults: Vec<_> = schema.iter_errors(&agent).map(|fault| fault.to_string()).collect();
    assert_eq!(faults, [""; 0], "{agent}");
    let mut wrong = agent.clone();
    wrong["distribution"]["binary"]["linux-riscv64"] = json!({"archive": "x", "cmd": "x"});
    assert!(!schema.is_valid(&wrong), "the schema refuses an unknown platform");

    assert_eq!(agent["version"], env!("CARGO_PKG_VERSION"));
    let numbers: Vec<_> = agent["version"].as_str().unwrap().split('.').collect();
    assert!(numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u32>().is_ok()), "{numbers:?}");
    assert!(agent["license_url"].as_str().unwrap().ends_with("/LICENSE"));
    // The build sets it.
    assert_eq!(agent.get("icon"), None);
    let platforms = agent["distribution"]["binary"].as_object().unwrap();
    let release = format!("/releases/download/v{}/", env!("CARGO_PKG_VERSION"));
    for system in ["darwin", "linux", "windows"] {
        assert!(platforms.keys().any(|name| name.starts_with(system)), "{system}");
    }
    for (platform, target) in platforms {
        let archive = target["archive"].as_str().unwrap();
        assert!(archive.contains(&release), "{platform}: {archive}");
        let packed = archive.rsplit_once('.').unwrap().1;
        let is_windows = platform.starts_with("windows");
        assert_eq!(packed, if is_windows { "zip" } else { "gz" }, "{archive}");
        assert_eq!(target["args"], json!(["acp"]));
        // The registry changes the version in URLs when a release appears. It changes neither
        // commands nor checksums.
        assert!(!target["cmd"].as_str().unwrap().contains(env!("CARGO_PKG_VERSION")));
        assert_eq!(target.get("sha256"), None);
    }

    assert!(icon.starts_with("<svg ") && !icon.contains("<!--") && !icon.contains("style"));
    assert!(icon.contains(r#" width="16" height="16" viewBox="0 0 16 16">"#), "{icon}");
    assert!(icon.contains("currentColor"));
    for attribute in [" fill=\"", " stroke=\""] {
        for (at, _) in icon.match_indices(attribute) {
            let value = icon[at + attribute.len()..].split('"').next().unwrap();
            assert!(matches!(value, "currentColor" | "none"), "{attribute}{value}");
        }
    }
}

/// The binary as the registry's CI starts it: where the archive has it, with an empty home
/// directory.
fn sandboxed(sandbox: &Directory) -> Command {
    let (agent, _) = entry("sandboxed");
    let (_, target) = agent["distribution"]["binary"].as_object().unwrap().iter().next().unwrap();
    let extracted = sandbox.0.join("extracted");
    let program = extracted.join(target["cmd"].as_str().unwrap());
    let home = sandbox.0.join("home");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_threadway"), &program).unwrap();
    let mut command = Command::new(program);
    let arguments = target["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    command.args(arguments).current_dir(extracted).env_clear();
    command.env("TERM", "dumb").env("HOME", &home).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_agent_starts_from_an_empty_home_and_offers_a_login() {
    let sandbox = Directory::new("sandbox");
    // The first check starts it without input.
    let ended: Output = sandboxed(&sandbox).stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
    std::fs::remove_dir_all(sandbox.0.join("extracted")).unwrap();

    // The second asks how to log in, as a client without ACP's `auth.terminal`.
    let mut agent = sandboxed(&sandbox).stdin(Stdio::piped()).spawn().unwrap();
    let capabilities = json!({
        "terminal": true,
        "fs": {"readTextFile": true, "writeTextFile": true},
        "_meta": {"terminal_output": true, "terminal-auth": true},
    });
    let params = json!({
        "protocolVersion": 1, "clientCapabilities": capabilities,
        "clientInfo": {"name": "registry", "version": "1"},
    });
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    writeln!(agent.stdin.as_ref().unwrap(), "{ask}").unwrap();
    let mut line = String::new();
    BufReader::new(agent.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // The end of stdin ends the agent.
    let ended = agent.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let answer: Value = serde_json::from_str(&line).unwrap();
    let methods = answer["result"]["authMethods"].as_array().unwrap();
    let kind = |method: &Value| method["type"].as_str().unwrap_or("agent").to_owned();
    assert!(methods.iter().any(|one| matches!(&*kind(one), "agent" | "terminal")), "{line}");
    let home = std::fs::read_dir(sandbox.0.join("home")).unwrap();
    assert_eq!(home.count(), 0, "the agent writes nothing before a login");
}
