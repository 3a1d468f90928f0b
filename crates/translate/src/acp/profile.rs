//! How a graph's tools and models are presented: by the operator's settings, or else by the names
//! of the tools.

use std::str::FromStr;

use super::glob::Glob;
use super::update::ToolKind;

/// The operator's settings for a graph's tools and models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphProfile {
    /// The kinds of tools, by name. The first match counts, and precedes the built-in names.
    pub kinds: Vec<(Glob, ToolKind)>,
    /// What absolute paths in arguments refer to.
    pub paths: Paths,
    /// The context windows of models in tokens, by name. The first match counts.
    pub windows: Vec<(Glob, u64)>,
    /// The tools for which a permanent answer may hold whatever the arguments are. `None` for all
    /// that neither run commands nor delete.
    pub always_by_tool: Option<Vec<Glob>>,
}

/// What absolute paths in a tool's arguments refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// The editor's disk, which the tools see.
    #[default]
    Host,
    /// The graph's virtual file system, as in `deepagents`: `/x` is `x` in the session's directory.
    Virtual,
}

/// A word that names no [`Paths`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `host` or `virtual`")]
pub struct UnknownPaths(String);

/// Common names of tools. `user_profile` has nothing to do with files, so a part of a name is
/// compared only if it may follow the name of an MCP server.
const KINDS: &[(&str, ToolKind)] = &[
    ("read_file", ToolKind::Read),
    ("read", ToolKind::Read),
    ("read_files", ToolKind::Read),
    ("read_text_file", ToolKind::Read),
    ("view_file", ToolKind::Read),
    ("open_file", ToolKind::Read),
    ("cat", ToolKind::Read),
    ("get_file", ToolKind::Read),
    ("view", ToolKind::Read),
    ("ls", ToolKind::Search),
    ("glob", ToolKind::Search),
    ("grep", ToolKind::Search),
    ("find", ToolKind::Search),
    ("list_dir", ToolKind::Search),
    ("list_directory", ToolKind::Search),
    ("list_files", ToolKind::Search),
    ("glob_search", ToolKind::Search),
    ("grep_search", ToolKind::Search),
    ("file_search", ToolKind::Search),
    ("search_files", ToolKind::Search),
    ("codebase_search", ToolKind::Search),
    ("edit_file", ToolKind::Edit),
    ("edit", ToolKind::Edit),
    ("multi_edit", ToolKind::Edit),
    ("write_file", ToolKind::Edit),
    ("write", ToolKind::Edit),
    ("create_file", ToolKind::Edit),
    ("modify_file", ToolKind::Edit),
    ("append_file", ToolKind::Edit),
    ("append_to_file", ToolKind::Edit),
    ("insert_edit", ToolKind::Edit),
    ("str_replace", ToolKind::Edit),
    ("str_replace_editor", ToolKind::Edit),
    ("str_replace_based_edit_tool", ToolKind::Edit),
    ("replace_in_file", ToolKind::Edit),
    ("search_replace", ToolKind::Edit),
    ("apply_patch", ToolKind::Edit),
    ("delete", ToolKind::Delete),
    ("delete_file", ToolKind::Delete),
    ("delete_files", ToolKind::Delete),
    ("delete_directory", ToolKind::Delete),
    ("remove_file", ToolKind::Delete),
    ("rm", ToolKind::Delete),
    ("unlink", ToolKind::Delete),
    ("mv", ToolKind::Move),
    ("move", ToolKind::Move),
    ("move_file", ToolKind::Move),
    ("rename", ToolKind::Move),
    ("rename_file", ToolKind::Move),
    ("execute", ToolKind::Execute),
    ("bash", ToolKind::Execute),
    ("shell", ToolKind::Execute),
    ("terminal", ToolKind::Execute),
    ("command", ToolKind::Execute),
    ("run_command", ToolKind::Execute),
    ("run_shell_command", ToolKind::Execute),
    ("run_terminal_cmd", ToolKind::Execute),
    ("execute_command", ToolKind::Execute),
    ("run_code", ToolKind::Execute),
    ("execute_code", ToolKind::Execute),
    ("python", ToolKind::Execute),
    ("python_repl", ToolKind::Execute),
    ("fetch", ToolKind::Fetch),
    ("fetch_url", ToolKind::Fetch),
    ("web_fetch", ToolKind::Fetch),
    ("web_search", ToolKind::Fetch),
    ("internet_search", ToolKind::Fetch),
    ("http_request", ToolKind::Fetch),
    ("requests_get", ToolKind::Fetch),
    ("tavily_search", ToolKind::Fetch),
    ("tavily_search_results_json", ToolKind::Fetch),
    ("duckduckgo_search", ToolKind::Fetch),
    ("think", ToolKind::Think),
    ("reason", ToolKind::Think),
    ("analyze", ToolKind::Think),
    ("write_todos", ToolKind::Think),
    ("get_url", ToolKind::Fetch),
    ("download", ToolKind::Fetch),
    ("download_file", ToolKind::Fetch),
    ("read_multiple_files", ToolKind::Read),
    ("read_media_file", ToolKind::Read),
    ("directory_tree", ToolKind::Search),
    ("switch_mode", ToolKind::SwitchMode),
    ("set_mode", ToolKind::SwitchMode),
    ("change_mode", ToolKind::SwitchMode),
    ("switch_context", ToolKind::SwitchMode),
];

/// The commands of tools that have one name for all that they do with a file, as Anthropic's text
/// editor and memory do.
const FILE_COMMANDS: &[(&str, ToolKind)] = &[
    ("view", ToolKind::Read),
    ("create", ToolKind::Edit),
    ("str_replace", ToolKind::Edit),
    ("insert", ToolKind::Edit),
    ("undo_edit", ToolKind::Edit),
    ("delete", ToolKind::Delete),
    ("rename", ToolKind::Move),
];

/// The tool of that form whose name says nothing of files.
const MEMORY: &str = "memory";

/// Words that give a kind to the names that have them, such as `query_db` and `http_get`. Each is a
/// word that is seldom used for anything else: `read`, `get`, `run` and `delete` are not here.
const WORDS: &[(&str, ToolKind)] = &[
    ("curl", ToolKind::Fetch),
    ("wget", ToolKind::Fetch),
    ("http", ToolKind::Fetch),
    ("https", ToolKind::Fetch),
    ("fetch", ToolKind::Fetch),
    ("exec", ToolKind::Execute),
    ("bash", ToolKind::Execute),
    ("shell", ToolKind::Execute),
    ("grep", ToolKind::Search),
    ("search", ToolKind::Search),
    ("query", ToolKind::Search),
    ("sql", ToolKind::Search),
    ("lookup", ToolKind::Search),
];

/// The prefix of a tool of an MCP server; the server's name, `__` and the tool's name follow.
const MCP: &str = "mcp__";

/// What may stand between an MCP server's name and its tool's, and between the words of a name.
const SEPARATORS: [char; 5] = ['_', '-', '.', ':', '/'];

// === impl GraphProfile ===

impl GraphProfile {
    /// The kind of a tool: by the operator's settings, by a known name, or by a word in the name.
    pub fn kind(&self, name: &str) -> ToolKind {
        let set = self.kinds.iter().find(|(glob, _)| glob.matches(name)).map(|(_, kind)| *kind);
        set.or_else(|| known_kind(without_server(name))).unwrap_or(ToolKind::Other)
    }

    /// The kind of a call of a tool. `command` is its argument of that name: a tool that reads and
    /// writes files by commands is of the command's kind.
    pub fn kind_of_call(&self, name: &str, command: Option<&str>) -> ToolKind {
        let kind = self.kind(name);
        let is_set = self.kinds.iter().any(|(glob, _)| glob.matches(name));
        let has_commands = kind == ToolKind::Edit || without_server(name) == MEMORY;
        let command = command.filter(|_| has_commands && !is_set);
        let known = command.and_then(|command| {
            FILE_COMMANDS.iter().find(|(known, _)| *known == command).map(|(_, kind)| *kind)
        });
        known.unwrap_or(kind)
    }

    /// The context window of a model in tokens, if the operator has set it.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.windows.iter().find(|(glob, _)| glob.matches(model)).map(|(_, window)| *window)
    }
}

fn known_kind(name: &str) -> Option<ToolKind> {
    let of = |table: &[(&str, ToolKind)], name: &str| {
        table.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    };
    // A name of one word may end a name with another meaning: `user_find` finds no file, and
    // `heating_set_mode` changes no mode of the agent.
    let behind_server = || {
        let is_end = |(known, kind): &&(&str, ToolKind)| {
            let before = name.strip_suffix(known);
            known.contains('_')
                && *kind != ToolKind::SwitchMode
                && before.is_some_and(|before| before.ends_with(SEPARATORS))
        };
        KINDS.iter().find(is_end).map(|(_, kind)| *kind)
    };
    let by_word = || {
        let mut words = name.split(SEPARATORS);
        words.find_map(|word| of(WORDS, &word.to_ascii_lowercase()))
    };
    of(KINDS, name).or_else(behind_server).or_else(by_word)
}

/// The name of a tool without the MCP server that it is of.
fn without_server(name: &str) -> &str {
    let named = name.strip_prefix(MCP).and_then(|rest| rest.split_once("__"));
    named.map_or(name, |(_server, tool)| tool)
}

// === impl Paths ===

impl FromStr for Paths {
    type Err = UnknownPaths;

    fn from_str(name: &str) -> Result<Self, UnknownPaths> {
        match name {
            "host" => Ok(Self::Host),
            "virtual" => Ok(Self::Virtual),
            _ => Err(UnknownPaths(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_goes_by_the_whole_name_and_the_operators_setting_comes_first() {
        let glob = |pattern: &str| pattern.parse::<Glob>().unwrap();
        let kinds = vec![(glob("db_*"), ToolKind::Fetch), (glob("read_file"), ToolKind::Other)];
        let profile = GraphProfile { kinds, ..GraphProfile::default() };
        assert_eq!(profile.kind("db_query"), ToolKind::Fetch);
        assert_eq!(profile.kind("read_file"), ToolKind::Other);
        assert_eq!(profile.kind("write_file"), ToolKind::Edit);
        assert_eq!(profile.kind("user_profile"), ToolKind::Other);
        assert_eq!(profile.kind("delete_account"), ToolKind::Other);
    }

    #[test]
    fn the_usual_names_have_their_kind_without_settings() {
        let profile = GraphProfile::default();
        for (name, kind) in [
            ("search", ToolKind::Search),
            ("search_flights", ToolKind::Search),
            ("query_db", ToolKind::Search),
            ("sql-query", ToolKind::Search),
            ("exec", ToolKind::Execute),
            ("exec_command", ToolKind::Execute),
            ("curl", ToolKind::Fetch),
            ("http_get", ToolKind::Fetch),
            ("web_search", ToolKind::Fetch),
            ("mcp__filesystem__read_file", ToolKind::Read),
            ("mcp__db__query_db", ToolKind::Search),
            ("filesystem_read_file", ToolKind::Read),
            ("fs.delete_file", ToolKind::Delete),
            ("filesystem-write_file", ToolKind::Edit),
            ("thread_file", ToolKind::Other),
            ("user_move", ToolKind::Other),
            // The server's name says nothing about its tools.
            ("mcp__search__send_mail", ToolKind::Other),
            ("research", ToolKind::Other),
            ("executive_summary", ToolKind::Other),
            ("run_payroll", ToolKind::Other),
            ("mcp__", ToolKind::Other),
            ("", ToolKind::Other),
            // The specification's table.
            ("get_file", ToolKind::Read),
            ("view", ToolKind::Read),
            ("modify_file", ToolKind::Edit),
            ("unlink", ToolKind::Delete),
            ("command", ToolKind::Execute),
            ("reason", ToolKind::Think),
            ("analyze", ToolKind::Think),
            ("set_mode", ToolKind::SwitchMode),
            ("change_mode", ToolKind::SwitchMode),
            ("switch_context", ToolKind::SwitchMode),
            ("mcp__fs__modify_file", ToolKind::Edit),
            ("fs_get_file", ToolKind::Read),
            ("heating_set_mode", ToolKind::Other),
            ("code_review", ToolKind::Other),
        ] {
            assert_eq!(profile.kind(name), kind, "{name}");
        }
        let kinds = vec![("mcp__*".parse::<Glob>().unwrap(), ToolKind::Think)];
        let profile = GraphProfile { kinds, ..GraphProfile::default() };
        assert_eq!(profile.kind("mcp__filesystem__read_file"), ToolKind::Think);
    }

    #[test]
    fn a_tool_with_commands_is_of_the_commands_kind_unless_the_operator_says_otherwise() {
        let profile = GraphProfile::default();
        for (name, command, kind) in [
            ("str_replace_based_edit_tool", Some("view"), ToolKind::Read),
            ("str_replace_based_edit_tool", Some("create"), ToolKind::Edit),
            ("str_replace_based_edit_tool", Some("juggle"), ToolKind::Edit),
            ("str_replace_based_edit_tool", None, ToolKind::Edit),
            ("mcp__x__memory", Some("delete"), ToolKind::Delete),
            ("memory", Some("rename"), ToolKind::Move),
            ("memory", None, ToolKind::Other),
            // The command of a shell is no command of an editor.
            ("bash", Some("view"), ToolKind::Execute),
            ("remote", Some("view"), ToolKind::Other),
        ] {
            assert_eq!(profile.kind_of_call(name, command), kind, "{name} {command:?}");
        }
        let kinds = vec![("str_*".parse::<Glob>().unwrap(), ToolKind::Other)];
        let profile = GraphProfile { kinds, ..GraphProfile::default() };
        assert_eq!(profile.kind_of_call("str_replace_editor", Some("view")), ToolKind::Other);
    }
}
