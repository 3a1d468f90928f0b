//! The table `acp` of the config file: how ACP presents the agents.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toml::{Table, Value};

use crate::server;
use crate::sessions::{Settings, Unstable};
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::mcp::Secrets;
use threadway_translate::acp::permission::{Rule, Rules};
use threadway_translate::acp::prompt::{ARGS, AcceptedContent, SlashCommand};
use threadway_translate::acp::{Glob, GraphProfile};
use threadway_translate::json::Json;

/// How ACP presents the agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acp {
    /// The agent of new sessions; `None` for the first that the upstream lists.
    pub agent: Option<String>,
    /// How all agents are presented.
    pub settings: Settings,
}

/// The table in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AcpTable {
    agent: Option<String>,
    prompt: Option<Vec<PromptKind>>,
    paths: Option<String>,
    context_windows: IndexMap<String, u64>,
    tool_kinds: IndexMap<String, String>,
    permissions: IndexMap<String, Rule>,
    always_by_tool: Option<Vec<String>>,
    commands: IndexMap<String, CommandTable>,
    modes: IndexMap<String, ModeTable>,
    forward_mcp_servers: Option<String>,
    forward_mcp_secrets: bool,
    system_prompt_key: Option<String>,
    unstable: Vec<Unstable>,
}

/// A kind of content that a prompt may hold besides text and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PromptKind {
    Image,
    Audio,
    EmbeddedContext,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandTable {
    description: String,
    hint: Option<String>,
    prompt: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModeTable {
    name: Option<String>,
    description: Option<String>,
    assistant: Option<String>,
    configurable: Table,
    permissions: IndexMap<String, Rule>,
}

impl From<&Acp> for server::Acp {
    fn from(Acp { agent, settings }: &Acp) -> Self {
        Self { agent: agent.clone(), settings: settings.clone() }
    }
}

// === impl Acp ===

impl Acp {
    /// Reads the table. The error is what was expected instead.
    pub(super) fn read(table: Value) -> Result<Self, String> {
        let written: AcpTable = table.try_into().map_err(|error: toml::de::Error| {
            let message = error.to_string();
            format!(
                "a table as in config.toml.example ({})",
                message.trim_end().replace('\n', ", ")
            )
        })?;
        let accepts = written.prompt.map(|kinds| AcceptedContent {
            image: kinds.contains(&PromptKind::Image),
            audio: kinds.contains(&PromptKind::Audio),
            embedded_context: kinds.contains(&PromptKind::EmbeddedContext),
        });
        let paths = written.paths.as_deref().map(|paths| parsed("paths", paths)).transpose()?;
        let kinds = written.tool_kinds.iter();
        reachable("tool_kinds", written.tool_kinds.keys())?;
        let kinds = kinds.map(|(tool, kind)| {
            Ok((glob("tool_kinds", tool)?, parsed(&format!("tool_kinds.\"{tool}\""), kind)?))
        });
        let windows = written.context_windows.iter();
        reachable("context_windows", written.context_windows.keys())?;
        let windows = windows.map(|(model, size)| match size {
            0 => Err(format!("`context_windows.\"{model}\"`: a number of tokens, at least 1")),
            size => Ok((glob("context_windows", model)?, *size)),
        });
        let by_tool = written.always_by_tool.map(|tools| {
            tools.iter().map(|tool| glob("always_by_tool", tool)).collect::<Result<_, String>>()
        });
        let profile = GraphProfile {
            kinds: kinds.collect::<Result<_, String>>()?,
            paths: paths.unwrap_or_default(),
            windows: windows.collect::<Result<_, String>>()?,
            always_by_tool: by_tool.transpose()?,
        };
        let commands = written.commands.into_iter().map(|(name, command)| {
            let CommandTable { description, hint, prompt } = command;
            let is_word = !name.is_empty() && !name.contains(char::is_whitespace);
            let command = SlashCommand { name, description, hint, prompt };
            let has_place = command.prompt.as_ref().is_none_or(|prompt| prompt.contains(ARGS));
            if !is_word {
                return Err(format!("a command's name without spaces, not {:?}", command.name));
            }
            if command.hint.is_some() && !has_place {
                let name = &command.name;
                return Err(format!(
                    "`{ARGS}` in `commands.{name}.prompt`, since `hint` asks for a text: it would \
                     be lost"
                ));
            }
            Ok(command)
        });
        if let Some(key) = &written.forward_mcp_servers
            && (key.is_empty() || is_for_langgraph(key))
        {
            return Err(format!(
                "`forward_mcp_servers`: a key of the graph's own in `config.configurable`, not {key:?}"
            ));
        }
        if let Some(key) = &written.system_prompt_key
            && (key.is_empty()
                || is_for_langgraph(key)
                || written.forward_mcp_servers.as_ref() == Some(key))
        {
            return Err(format!(
                "`system_prompt_key`: a key of the graph's own in `config.configurable`, other than \
                 that of `forward_mcp_servers`, not {key:?}"
            ));
        }
        if written.agent.as_deref() == Some("") {
            return Err("`agent`: the name of an agent".to_owned());
        }
        if written.forward_mcp_secrets && written.forward_mcp_servers.is_none() {
            let expected = "`forward_mcp_servers` beside `forward_mcp_secrets`: the key under which \
                            the graph gets the servers";
            return Err(expected.to_owned());
        }
        let mcp_secrets =
            if written.forward_mcp_secrets { Secrets::Forwarded } else { Secrets::Withheld };
        let modes = written.modes.into_iter().map(|(id, mode)| Self::mode(id, mode));
        let settings = Settings {
            profile: Arc::new(profile),
            accepts,
            commands: commands.collect::<Result<_, String>>()?,
            modes: modes.collect::<Result<_, String>>()?,
            permissions: rules("permissions", &written.permissions)?,
            mcp_key: written.forward_mcp_servers,
            system_prompt_key: written.system_prompt_key,
            mcp_secrets,
            unstable: written.unstable,
        };
        Ok(Self { agent: written.agent, settings })
    }

    fn mode(id: String, mode: ModeTable) -> Result<Mode, String> {
        let ModeTable { name, description, assistant, configurable, permissions } = mode;
        if id.is_empty() {
            return Err("`modes`: a name for each mode".to_owned());
        }
        if assistant.as_deref() == Some("") {
            return Err(format!("`modes.{id}.assistant`: the name of an agent"));
        }
        if let Some(key) = configurable.keys().find(|key| is_for_langgraph(key)) {
            return Err(format!(
                "`modes.{id}.configurable`: keys of the graph's own; LangGraph itself sets `{key}`"
            ));
        }
        let permissions = rules(&format!("modes.{id}.permissions"), &permissions)?;
        let configurable = (!configurable.is_empty()).then(|| {
            let json = serde_json::to_string(&configurable).unwrap_or_default();
            serde_json::from_str::<&RawValue>(&json).map(Json::from)
        });
        let configurable = configurable.transpose().map_err(|error| {
            format!("`modes.{id}.configurable` that can be written as JSON ({error})")
        })?;
        let name = name.unwrap_or_else(|| capitalised(&id));
        Ok(Mode { id, name, description, assistant, configurable, permissions })
    }
}

fn rules(place: &str, rules: &IndexMap<String, Rule>) -> Result<Rules, String> {
    reachable(place, rules.keys())?;
    let rules = rules.iter().map(|(tool, rule)| Ok((glob(place, tool)?, *rule)));
    Ok(Rules(rules.collect::<Result<_, String>>()?))
}

/// Fails for a pattern after one that matches every name: the first match counts.
fn reachable<'a>(
    place: &str,
    mut patterns: impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    let is_everything = |pattern: &&String| pattern.bytes().all(|byte| byte == b'*');
    let everything = patterns.find(|pattern| !pattern.is_empty() && is_everything(pattern));
    match (everything, patterns.next()) {
        (Some(everything), Some(later)) => Err(format!(
            "`{place}`: `{later}` before `{everything}`, which matches every name: the first match \
             counts"
        )),
        _ => Ok(()),
    }
}

/// Whether LangGraph itself sets this key of `config.configurable` for each run.
fn is_for_langgraph(key: &str) -> bool {
    matches!(key, "thread_id" | "run_id" | "graph_id" | "assistant_id")
        || key.starts_with("checkpoint_")
}

fn glob(place: &str, text: &str) -> Result<Glob, String> {
    parsed(place, text)
}

fn parsed<T: FromStr<Err: Display>>(place: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|expected| format!("`{place}`: {expected}"))
}

fn capitalised(id: &str) -> String {
    let mut rest = id.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}
