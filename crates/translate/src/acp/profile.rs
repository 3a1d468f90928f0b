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
    ("append_file", ToolKind::Edit),
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
    ("mv", ToolKind::Move),
    ("move", ToolKind::Move),
    ("move_file", ToolKind::Move),
    ("rename", ToolKind::Move),
    ("rename_file", ToolKind::Move),
    ("execute", ToolKind::Execute),
    ("bash", ToolKind::Execute),
    ("shell", ToolKind::Execute),
    ("terminal", ToolKind::Execute),
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
    ("write_todos", ToolKind::Think),
    ("get_url", ToolKind::Fetch),
    ("download", ToolKind::Fetch),
    ("download_file", ToolKind::Fetch),
    ("read_multiple_files", ToolKind::Read),
    ("read_media_file", ToolKind::Read),
    ("directory_tree", ToolKind::Search),
];

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

    /// The context window of a model in tokens, if the operator has set it.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.windows.iter().find(|(glob, _)| glob.matches(model)).map(|(_, window)| *window)
    }
}

fn known_kind(name: &str) -> Option<ToolKind> {
    let of = |table: &[(&str, ToolKind)], name: &str| {
        table.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    };
    // A name of one word may end a name with another meaning: `user_find` finds no file.
    let behind_server = || {
        let is_end = |known: &str| {
            let before = name.strip_suffix(known);
            known.contains('_') && before.is_some_and(|before| before.ends_with(SEPARATORS))
        };
        KINDS.iter().find(|(known, _)| is_end(known)).map(|(_, kind)| *kind)
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
        ] {
            assert_eq!(profile.kind(name), kind, "{name}");
        }
        let kinds = vec![("mcp__*".parse::<Glob>().unwrap(), ToolKind::Think)];
        let profile = GraphProfile { kinds, ..GraphProfile::default() };
        assert_eq!(profile.kind("mcp__filesystem__read_file"), ToolKind::Think);
    }
}
