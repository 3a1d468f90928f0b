//! `threadway completions` and `threadway man`: bash accepts the completions, and the manual page
//! lists every option.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;
use clap_complete::Shell;
use threadway::cli::Cli;
use threadway::manual;

/// The roff requests that a manual page may have. A line with another request is text that was not
/// escaped.
const REQUESTS: &[&str] = &["ie", "el", "TH", "SH", "PP", "TP", "IP", "RS", "RE", "nf", "fi", "br"];

fn threadway(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_threadway")).args(args).env_clear().output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = threadway(args);
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    assert!(stderr.is_empty());
    String::from_utf8(stdout).unwrap()
}

/// Runs a script in bash; returns its output.
fn bash(args: &[&str], script: &str) -> String {
    let mut bash = Command::new("bash")
        .args(["--norc", "--noprofile"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = bash.wait_with_output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn bash_takes_the_completions() {
    bash(&["-n"], &printed(&["completions", "bash"]));
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = printed(&["completions", "bash"]);
    for (words, expected) in [
        ("threadway ser", "serve"),
        ("threadway serve --upstream-a", "--upstream-api-key"),
        ("threadway translate --to ac", "acp"),
        ("threadway completions ba", "bash"),
    ] {
        let (words, last) = (words.replace(' ', "' '"), words.split(' ').count() - 1);
        // The calls that readline makes for a tab.
        let tab = format!(
            "{script}\nCOMP_WORDS=('{words}') COMP_CWORD={last}\n\
             _threadway threadway \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        );
        assert_eq!(bash(&[], &tab), format!("{expected}\n"), "{words}");
    }
}

#[test]
fn each_shell_has_a_script_with_every_command() {
    for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
        let script = String::from_utf8(manual::completions(shell)).unwrap();
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
    }
    assert_eq!(threadway(&["completions", "tcsh"]).status.code(), Some(64));
}

#[test]
fn each_command_has_a_page_with_all_its_options() {
    let mut root = Cli::command();
    root.build();
    let first = printed(&["man"]);
    assert_page(&root, "threadway", &first);
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        assert!(
            first.contains(&format!(r"threadway\-{name}(1)")),
            "{name} is not on the first page"
        );
        assert_page(command, &format!("threadway-{name}"), &printed(&["man", name]));
    }
    assert_eq!(threadway(&["man", "nothing"]).status.code(), Some(64));
}

fn assert_page(command: &clap::Command, title: &str, page: &str) {
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!(".TH {title} 1 \"\" \"threadway {version}\" \"User Commands\"");
    assert!(page.lines().any(|line| line == heading), "{title}:\n{page}");
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\""] {
        assert_eq!(
            page.lines().filter(|line| *line == format!(".SH {section}")).count(),
            1,
            "{title}"
        );
    }
    for line in page.lines().filter_map(|line| line.strip_prefix(['.', '\''])) {
        let request = line.split(' ').next().unwrap_or_default();
        assert!(REQUESTS.contains(&request), "{title}: `{line}` is no request");
    }
    for argument in command.get_arguments() {
        if let Some(long) = argument.get_long() {
            assert!(page.contains(&long.replace('-', r"\-")), "{title}: --{long} is missing");
        }
        if let Some(variable) = argument.get_env() {
            assert!(page.contains(variable.to_str().unwrap()), "{title}: {variable:?} is missing");
        }
    }
}
