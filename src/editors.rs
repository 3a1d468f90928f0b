//! Settings to paste into an editor, so that it starts `threadway acp`.

use std::iter;
use std::path::{Path, absolute};

use serde_json::{Value, json};

use crate::cli::{Acp, Editor};

/// The command that the editor runs.
#[derive(Debug)]
struct EditorCommand {
    program: String,
    args: Vec<String>,
}

/// The settings for an editor. The first line says where they belong, if the format has comments.
///
/// `program` is an absolute path, because editors have another `PATH` than shells. `args` are those
/// of the command that prints the settings; the editor's command repeats them. The key is left out:
/// it does not belong in settings.
pub fn snippet(editor: Editor, program: &Path, args: &Acp) -> String {
    EditorCommand::new(program, args).snippet(editor)
}

/// The command that asks a person for the server and its key in a terminal.
pub fn login_command(program: &Path, args: &Acp) -> String {
    let EditorCommand { program, args } = EditorCommand::new(program, args);
    let words = iter::once(&*program).chain(args.iter().map(String::as_str)).chain(["--login"]);
    words.map(shell_word).collect::<Vec<_>>().join(" ")
}

// === impl EditorCommand ===

impl EditorCommand {
    fn new(program: &Path, args: &Acp) -> Self {
        let config = args.config.as_ref().map(|file| {
            // The editor runs it in another directory.
            absolute(file).unwrap_or_else(|_| file.clone()).display().to_string()
        });
        // A server that is named takes the place of a gateway in the environment.
        let has_server = args.upstream.is_some() || args.config.is_some();
        let gateway = args.gateway.clone().filter(|_| !has_server);
        let options = [
            ("--gateway", &gateway),
            ("--upstream", &args.upstream),
            ("--config", &config),
            ("--agent", &args.agent),
        ];
        let options =
            options.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
        let args = iter::once("acp".to_owned()).chain(options.flatten()).collect();
        Self { program: program.display().to_string(), args }
    }

    fn snippet(&self, editor: Editor) -> String {
        let Self { program, args } = self;
        match editor {
            Editor::Zed => {
                let server = json!({"type": "custom", "command": program, "args": args, "env": {}});
                let settings = json!({"agent_servers": {"threadway": server}});
                format!("// Zed: in settings.json (zed: open settings)\n{}", pretty(&settings))
            }
            Editor::Jetbrains => {
                let server = json!({"command": program, "args": args, "env": {}});
                let settings = json!({"agent_servers": {"threadway": server}});
                // JSON without comments, which the editor would not accept.
                format!("{}\n", pretty(&settings).trim_end())
            }
            Editor::Neovim => {
                let words = iter::once(program).chain(args);
                let words: Vec<_> = words.map(|word| lua_string(word)).collect();
                format!(
                    "-- Neovim: CodeCompanion, in require(\"codecompanion\").setup({{ ... }})\n\
                     adapters = {{\n  acp = {{\n    threadway = function()\n      \
                     local helpers = require(\"codecompanion.adapters.acp.helpers\")\n      \
                     return {{\n        name = \"threadway\",\n        \
                     formatted_name = \"threadway\",\n        type = \"acp\",\n        \
                     roles = {{ llm = \"assistant\", user = \"user\" }},\n        \
                     commands = {{ default = {{ {} }} }},\n        \
                     defaults = {{ mcpServers = {{}}, timeout = 20000 }},\n        \
                     parameters = {{\n          protocolVersion = 1,\n          \
                     clientCapabilities = {{ fs = {{ readTextFile = true, writeTextFile = true }} \
                     }},\n          clientInfo = {{ name = \"CodeCompanion.nvim\", version = \
                     \"1.0.0\" }},\n        }},\n        handlers = {{\n          \
                     setup = function() return true end,\n          \
                     auth = function() return true end,\n          \
                     form_messages = function(self, messages, capabilities)\n            \
                     return helpers.form_messages(self, messages, capabilities)\n          end,\n          \
                     on_exit = function() end,\n        }},\n      }}\n    end,\n  }},\n}},\n",
                    words.join(", ")
                )
            }
            Editor::Acpx => {
                let words = iter::once(program).chain(args);
                let words: Vec<_> = words.map(|word| shell_word(word)).collect();
                let command = shell_word(&words.join(" "));
                format!("acpx --agent {command} exec 'Hello'\n")
            }
        }
    }
}

fn pretty(value: &Value) -> String {
    // A value of strings always serialises.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn lua_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> EditorCommand {
        let args = ["acp", "--upstream", "http://127.0.0.1:2024", "--config", "my file.toml"];
        EditorCommand {
            program: "/opt/threadway".to_owned(),
            args: args.map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn what_is_json_can_be_read_as_json() {
        let snippet = start().snippet(Editor::Jetbrains);
        let value: Value = serde_json::from_str(&snippet).unwrap();
        assert_eq!(value["agent_servers"]["threadway"]["args"][4], "my file.toml");
        let snippet = start().snippet(Editor::Zed);
        let (comment, rest) = snippet.split_once('\n').unwrap();
        assert!(comment.starts_with("//"));
        let value: Value = serde_json::from_str(rest).unwrap();
        assert_eq!(value["agent_servers"]["threadway"]["command"], "/opt/threadway");
    }

    #[test]
    fn a_shell_and_lua_get_their_own_quotes() {
        let snippet = start().snippet(Editor::Acpx);
        assert_eq!(
            snippet,
            "acpx --agent '/opt/threadway acp --upstream http://127.0.0.1:2024 --config \
             '\\''my file.toml'\\''' exec 'Hello'\n"
        );
        let snippet = start().snippet(Editor::Neovim);
        assert!(snippet.contains("{ \"/opt/threadway\", \"acp\", "), "{snippet}");
        assert_eq!(lua_string("a\"b\\"), "\"a\\\"b\\\\\"");
    }
}
