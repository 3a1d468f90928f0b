//! The limit of open files, which bounds the connections.

/// Files for each connection: its own, and one to the upstream for its stream.
const FILES_OF_CONNECTION: u64 = 2;

/// Raises the soft limit of open files to the hard one, and returns it. Shells and service managers
/// keep the soft one low for programs that use `select`.
#[cfg(unix)]
pub(super) fn raise_limit() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX).unwrap_or_else(|error| {
        tracing::warn!(target: "threadway", %error, "the limit of open files was not raised");
        u64::MAX
    })
}

/// Other systems have no such limit for sockets.
#[cfg(not(unix))]
pub(super) fn raise_limit() -> u64 {
    u64::MAX
}

/// Warns if the limit of open files is too low for this many connections.
pub(super) fn warn_if_few(limit: u64, connections: usize) {
    let connections = u64::try_from(connections).unwrap_or(u64::MAX);
    let wanted = connections.saturating_mul(FILES_OF_CONNECTION);
    if limit < wanted {
        tracing::warn!(
            target: "threadway",
            limit,
            wanted,
            "the process may open {limit} files, and `limits.connections` needs {wanted}; raise the \
             hard limit (`ulimit -Hn`, `LimitNOFILE=`), or lower `limits.connections`"
        );
    }
}
