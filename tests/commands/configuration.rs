//! Wrong configurations: each is refused with its place and what is expected.
//!
//! The tables have a row for each mistake, and at least one for each key of config.toml.example and
//! for each flag and variable.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Output;
use std::sync::Arc;

use super::first_steps::{Server, ended, stderr, stdout};
use crate::support::process::{File, Process};
use clap::CommandFactory;
use threadway::cli::Cli;
use tokio::task::JoinSet;
use toml::{Table, Value};

/// Mistakes in the config file: a key, the file, and what is printed about it. `$URL` is the URL of a
/// LangGraph server with one agent `agent`, whose graph takes `messages`. A file that names no
/// server gets this one. `$FILE` is the path of the file. ` .. ` in the third column stands for any
/// text.
const OF_FILES: &[(&str, &str, &str)] = &[
    // The address of the gateway.
    ("listen", "listen = 8484", "`listen` in $FILE is 8484; expected a string"),
    ("listen", "listen = {}", "`listen` in $FILE is {}; expected a string"),
    ("listen", "listen = ''", "`listen` in $FILE is ; expected an address and a port"),
    (
        "listen",
        "listen = 'localhost'",
        "`listen` in $FILE is localhost; expected an address and a port",
    ),
    (
        "listen",
        "listen = '0.0.0.0:1'",
        "`listen` in $FILE is 0.0.0.0:1; expected a loopback address",
    ),
    (
        "listen",
        "listen = '192.0.2.1:1'\ninsecure = true",
        "cannot listen on 192.0.2.1:1: .. --listen",
    ),
    ("insecure", "insecure = 'maybe'", "`insecure` in $FILE is maybe; expected `true` or `false`"),
    ("hosts", "hosts = ['http://a']", "`hosts` in $FILE is http://a; expected a name such as"),
    ("hosts", "hosts = [1]", "`hosts` in $FILE is [1]; expected a list of strings"),
    ("admin_listen", "admin_listen = 'x'", "`admin_listen` in $FILE is x; expected an address"),
    (
        "admin_listen",
        "listen = '127.0.0.1:18484'\nadmin_listen = '127.0.0.1:18484'",
        "`admin_listen` in $FILE is 127.0.0.1:18484; expected another address than that of `listen`",
    ),
    (
        "admin_listen",
        "admin_listen = ':8484'",
        "`admin_listen` in $FILE is :8484; expected another address than that of `listen`, 127.0.0.1:8484",
    ),
    (
        "admin_listen",
        "insecure = true\nlisten = '127.0.0.1:18484'\nadmin_listen = '0.0.0.0:18484'",
        "`admin_listen` in $FILE is 0.0.0.0:18484; expected another address",
    ),
    (
        "admin_listen",
        "insecure = true\nlisten = '[::]:18484'\nadmin_listen = '127.0.0.1:18484'",
        "`admin_listen` in $FILE is 127.0.0.1:18484; expected another address",
    ),
    // Operation.
    (
        "otlp_endpoint",
        "otlp_endpoint = 'c:4318'",
        "`otlp_endpoint` in $FILE is c:4318; expected a URL",
    ),
    (
        "otlp_endpoint",
        "otlp_endpoint = 'http://c:4318/v1/traces'",
        "`otlp_endpoint` in $FILE is http://c:4318/v1/traces; expected the URL without /v1/traces",
    ),
    (
        "otlp_endpoint",
        "listen = ':18484'\notlp_endpoint = 'http://localhost:18484'",
        "`otlp_endpoint` in $FILE is http://localhost:18484; expected the URL of another server",
    ),
    (
        "watch_config",
        "watch_config = 1",
        "`watch_config` in $FILE is 1; expected `true` or `false`",
    ),
    ("error_detail", "error_detail = 'all'", "`error_detail` in $FILE is all; expected `full` or"),
    (
        "log",
        "log = 'infoo'",
        "`log` in $FILE is infoo; expected a level .. perhaps `info` is meant",
    ),
    (
        "log",
        "log = 'threadwai=debug'",
        "`log` in $FILE .. `threadwai=debug` names neither, perhaps `threadway`",
    ),
    (
        "log",
        "log = 'info,threadway::serve=debug'",
        "`log` in $FILE .. `threadway::serve=debug` names neither",
    ),
    ("log", "log = 'jsn'", "`log` in $FILE .. `jsn` names neither, perhaps `json` is meant"),
    ("log", "log = 'info,warn'", "`log` in $FILE is info,warn; expected one level for all modules"),
    ("log", "log = ''", "`log` in $FILE is ; expected a log filter"),
    ("log", "log = {}", "`log` in $FILE is {}; expected a string"),
    ("log", "log = 'threadway=loud'", "`log` in $FILE is threadway=loud; expected a log filter"),
    ("log", "log = 'json,text'", "`log` in $FILE is json,text; expected a log filter"),
    ("audit_log", "audit_log = 1", "`audit_log` in $FILE is 1; expected a string"),
    ("audit_log", "audit_log = ''", "`audit_log` in $FILE: expected a file's path"),
    (
        "audit_log",
        "audit_log = '$FILE/audit.jsonl'",
        "`audit_log` in $FILE is $FILE/audit.jsonl; expected a place that can be written to (",
    ),
    (
        "audit_log",
        "audit_log = '/no/such/folder/a'",
        "`audit_log` in $FILE is /no/such/folder/a; expected a place that can be written to (No such",
    ),
    (
        "audit_log",
        "audit_log = '/'",
        "`audit_log` in $FILE is /; expected a place that can be written",
    ),
    ("record.dir", "record.dir = 1", "`record.dir` in $FILE is 1; expected a string"),
    ("record.dir", "record.dir = ''", "`record.dir` in $FILE: expected a directory"),
    (
        "record.dir",
        "record.dir = '$FILE'",
        "`record.dir` in $FILE is $FILE; expected a place that can be",
    ),
    (
        "record.dir",
        "record.dir = '$FILE/x/y'",
        "`record.dir` in $FILE is $FILE/x/y; expected a place",
    ),
    (
        "record.files",
        "record.files = 0",
        "`record.files` in $FILE is 0; expected a whole number between 1 and",
    ),
    (
        "record.bytes",
        "record.bytes = 1",
        "`record.bytes` in $FILE is 1; expected a whole number between 1048576",
    ),
    (
        "on_owner_disconnect",
        "on_owner_disconnect = 'stop'",
        "`on_owner_disconnect` in $FILE is stop; expected `continue` or",
    ),
    (
        "on_message_while_interrupted",
        "on_message_while_interrupted = 'ask'",
        "`on_message_while_interrupted` in $FILE is ask; expected `ask_again` or",
    ),
    (
        "compression",
        "compression = 'gzip'",
        "`compression` in $FILE is gzip; expected `off` or `on`",
    ),
    ("page", "page = 'yes'", "`page` in $FILE is yes; expected `true` or `false`"),
    (
        "thread_routes",
        "thread_routes = 'yes'",
        "`thread_routes` in $FILE is yes; expected `callers` or",
    ),
    (
        "multitask_strategy",
        "multitask_strategy = 'queue'",
        "`multitask_strategy` in $FILE is queue; expected `reject` or",
    ),
    (
        "forward_multitask_strategies",
        "forward_multitask_strategies = ['reject', 'any']",
        "`forward_multitask_strategies` in $FILE is any; expected `reject` or",
    ),
    (
        "forward_headers",
        "forward_headers = ['cookie']",
        "`forward_headers` in $FILE is cookie; expected the name of a header",
    ),
    (
        "forward_configurable",
        "forward_configurable = ['thread_id']",
        "`forward_configurable` in $FILE is thread_id; expected the name of a graph's own setting",
    ),
    (
        "input.system_messages",
        "input.system_messages = 'keep'",
        "`input.system_messages` in $FILE is keep; expected `send` or `drop`",
    ),
    // Callers.
    (
        "auth.mode",
        "auth.mode = 'keys'",
        "`auth.mode` in $FILE is keys; expected `none` or `bearer`",
    ),
    ("auth.mode", "auth = 'bearer'", "`auth` in $FILE: expected a table"),
    ("auth.mode", "auth.mode = 'bearer'", "`auth.mode` in $FILE is bearer; expected keys:"),
    (
        "auth.mode",
        "auth.mode = 'upstream'\nupstream = {url = '$URL', api_key = 'k'}",
        "`auth.mode` in $FILE is upstream; expected callers' own credentials",
    ),
    (
        "auth.keys.NAME",
        "auth.keys.a = '0123456789abcdef'",
        "`auth.keys.a` in $FILE: expected `auth.mode` bearer, the only mode .. none, which lets everyone in",
    ),
    (
        "auth.keys.NAME",
        "auth = {mode = 'upstream', keys.a = '0123456789abcdef'}",
        "`auth.keys.a` in $FILE: expected `auth.mode` bearer, the only mode .. `auth.mode` is upstream",
    ),
    (
        "auth.keys.NAME",
        "auth = {mode = 'bearer', keys.a = 'short'}",
        "`auth.keys.a` in $FILE: expected keys of 16 to",
    ),
    (
        "auth.keys.NAME",
        "auth = {mode = 'bearer', keys = {a = '0123456789abcdef', b = '0123456789abcdef'}}",
        "`auth.keys.b` in $FILE: expected a different key for each name",
    ),
    (
        "auth.keys.NAME",
        "auth = {mode = 'bearer', keys.a = 1}",
        "`auth.keys.a` in $FILE: expected a string",
    ),
    (
        "auth.keys_file",
        "auth.keys_file = '/no/keys'",
        "`auth.keys_file` in $FILE: expected `auth.mode` bearer",
    ),
    (
        "auth.keys_file",
        "auth = {mode = 'bearer', keys_file = '/no/keys'}",
        "`auth.keys_file` in $FILE is /no/keys; expected a file that can be read",
    ),
    (
        "auth.jwks",
        "auth.jwks = 'https://id.example.com/k'",
        "`auth.jwks` in $FILE: expected `auth.mode` jwt",
    ),
    (
        "auth.jwks",
        "auth = {mode = 'jwt', issuer = 'i', audience = ['a']}",
        "`auth.jwks`: expected a file or a URL",
    ),
    (
        "auth.jwks",
        "auth = {mode = 'jwt', jwks = '/no/keys', issuer = 'i', audience = ['a']}",
        "`auth.jwks`: expected a key set that can be read: /no/keys",
    ),
    (
        "auth.jwks",
        "auth = {mode = 'jwt', jwks = 'http://id.example.com/k', issuer = 'i', audience = ['a']}",
        "`auth.jwks` in $FILE: expected ",
    ),
    (
        "auth.jwks_ca_file",
        "auth.jwks_ca_file = '/no/ca'",
        "`auth.jwks_ca_file` in $FILE: expected `auth.mode` jwt",
    ),
    (
        "auth.jwks_ca_file",
        "auth = {mode = 'jwt', jwks = 'https://id.example.com/k', jwks_ca_file = '/no/ca', issuer = 'i', audience = ['a']}",
        "`auth.jwks_ca_file` in $FILE is /no/ca; expected a file that can be read",
    ),
    (
        "auth.jwks_ca_file",
        "auth = {mode = 'jwt', jwks = 'http://127.0.0.1:1/k', jwks_ca_file = '/no/ca', issuer = 'i', audience = ['a']}",
        "`auth.jwks_ca_file` in $FILE is /no/ca; expected an https:// URL in `auth.jwks`",
    ),
    ("auth.issuer", "auth.issuer = 'i'", "`auth.issuer` in $FILE: expected `auth.mode` jwt"),
    (
        "auth.issuer",
        "auth = {mode = 'jwt', jwks = 'https://id.example.com/k', audience = ['a']}",
        "`auth.issuer`: expected the issuer",
    ),
    (
        "auth.audience",
        "auth.audience = ['a']",
        "`auth.audience` in $FILE: expected `auth.mode` jwt",
    ),
    (
        "auth.audience",
        "auth = {mode = 'jwt', jwks = 'https://id.example.com/k', issuer = 'i'}",
        "`auth.audience`: expected at least one audience",
    ),
    (
        "auth.clock_skew_seconds",
        "auth.clock_skew_seconds = 60",
        "`auth.clock_skew_seconds` in $FILE: expected `auth.mode` jwt",
    ),
    (
        "auth.clock_skew_seconds",
        "auth = {mode = 'jwt', jwks = 'https://id.example.com/k', issuer = 'i', audience = ['a'], clock_skew_seconds = 301}",
        "`auth.clock_skew_seconds` in $FILE is 301; expected a whole number between 0 and 300",
    ),
    (
        "auth.unknown_threads",
        "auth.unknown_threads = 'none'",
        "`auth.unknown_threads` in $FILE is none; expected `empty` or",
    ),
    (
        "auth.credential_header",
        "auth.credential_header = 'x-api-key'",
        "`auth.credential_header` in $FILE: expected `auth.mode` upstream",
    ),
    (
        "auth.credential_header",
        "auth = {mode = 'upstream', credential_header = 'x-tenant'}",
        "`auth.credential_header` in $FILE is x-tenant; expected authorization, x-api-key, or one of",
    ),
    (
        "cors.origins",
        "cors.origins = ['chat']",
        "`cors.origins` in $FILE is chat; expected `*`, or origins such as",
    ),
    (
        "cors.origins",
        "cors.origins = '*'",
        "`cors.origins` is *; expected a list of origins, since `auth.mode`",
    ),
    (
        "cors.origins",
        "cors.origins = ['*', 'https://a']",
        "`cors.origins` in $FILE is *,https://a; expected either",
    ),
    (
        "cors.credentials",
        "cors.credentials = true",
        "`cors.origins` is ; expected origins that may send credentials",
    ),
    (
        "cors.credentials",
        "insecure = true\ncors = {origins = '*', credentials = true}",
        "`cors.origins` in $FILE is *; expected a list of origins, since credentials are allowed",
    ),
    (
        "cors.credentials",
        "cors.credentials = 1",
        "`cors.credentials` in $FILE is 1; expected `true` or `false`",
    ),
    // LangGraph.
    ("upstream.url", "upstream = '$URL'", "`upstream` in $FILE: expected a table"),
    (
        "upstream.url",
        "upstream.url = 'localhost'",
        "`upstream.url` in $FILE is localhost; expected an absolute URL",
    ),
    ("upstream.url", "upstream.url = ''", "`upstream.url` in $FILE is ; expected an absolute URL"),
    (
        "upstream.url",
        "upstream.uri = '$URL'",
        "`upstream.uri` in $FILE: expected a key of config.toml.example, such as `upstream.url`",
    ),
    (
        "upstream.url",
        "upstream.url = 'http://127.0.0.1:8484'",
        "`upstream.url` in $FILE is http://127.0.0.1:8484; expected the URL of another server",
    ),
    (
        "upstream.url",
        "insecure = true\nlisten = '0.0.0.0:18484'\nupstream.url = 'http://localhost:18484/api'",
        "`upstream.url` in $FILE is http://localhost:18484/api; expected the URL of another server",
    ),
    (
        "upstream.urls",
        "upstream.urls = []",
        "`upstream.urls` in $FILE: expected a list of 1 to 8 URLs",
    ),
    (
        "upstream.urls",
        "upstream = {url = '$URL', urls = ['$URL']}",
        "`upstream.urls` in $FILE: expected either",
    ),
    (
        "upstream.urls",
        "upstream.urls = ['$URL', '$URL/']",
        "`upstream.urls` in $FILE is $URL/; expected each URL once",
    ),
    (
        "upstream.urls",
        "upstream.urls = ['$URL', 'http://127.0.0.1:8484']",
        "`upstream.urls` in $FILE is $URL,http://127.0.0.1:8484; expected the URL of another server",
    ),
    (
        "upstream.api_key",
        "upstream = {url = '$URL', api_key = ''}",
        "`upstream.api_key` in $FILE: expected a key",
    ),
    (
        "upstream.api_key",
        "upstream = {url = '$URL', api_key = 'k', headers.X-Api-Key = 'l'}",
        "`upstream.headers.X-Api-Key` in $FILE: expected either this header or `upstream.api_key`",
    ),
    (
        "upstream.headers.NAME",
        "upstream = {url = '$URL', headers.'a b' = 'c'}",
        "`upstream.headers.a b` in $FILE: expected a valid header name",
    ),
    (
        "upstream.headers.NAME",
        "upstream = {url = '$URL', headers.host = 'c'}",
        "`upstream.headers.host` in $FILE: expected a header that the gateway does not set itself",
    ),
    (
        "upstream.headers.NAME",
        "upstream = {url = '$URL', headers = {x-a = 'b', X-A = 'c'}}",
        "`upstream.headers.x-a` in $FILE: expected each header once",
    ),
    (
        "upstream.ca_file",
        "upstream = {url = '$URL', ca_file = '/no/ca'}",
        "`upstream.ca_file` in $FILE is /no/ca; expected a server whose `url` begins with https://",
    ),
    (
        "upstream.ca_file",
        "upstream = {url = 'https://a', ca_file = '/no/ca'}",
        "`upstream.ca_file` in $FILE is /no/ca; expected a file that can be read",
    ),
    (
        "upstream.ca_file",
        "upstream = {url = 'https://a', ca_file = '$FILE'}",
        "`upstream.ca_file` in $FILE is $FILE; expected a file with certificates",
    ),
    (
        "upstream.client_certificate_file",
        "upstream = {url = '$URL', client_certificate_file = '/no/pem'}",
        "`upstream.client_certificate_file` in $FILE is /no/pem; expected a server whose `url`",
    ),
    (
        "upstream.client_certificate_file",
        "upstream = {url = 'https://a', client_certificate_file = '$FILE'}",
        "`upstream.client_certificate_file` in $FILE is $FILE; expected a file with a certificate and",
    ),
    (
        "upstream.messages_key",
        "upstream = {url = '$URL', messages_key = ''}",
        "`upstream.messages_key` in $FILE is ; expected the name of a key",
    ),
    (
        "upstream.messages_key",
        "upstream = {url = '$URL', messages_key = 'nope'}",
        "upstream default: agent: the messages of clients do not reach .. no key `nope`, but `messages`",
    ),
    (
        "upstreams.NAME.url",
        "[upstreams.a]",
        "`upstreams.a.url`: expected the URL of the LangGraph server",
    ),
    (
        "upstreams.NAME.url",
        "[upstreams.b]\nurl = '$URL'\n[upstreams.a]",
        "`upstreams.a.url`: expected the URL of the LangGraph server",
    ),
    (
        "upstreams.NAME.url",
        "[upstreams.a]\nheaders = {}",
        "`upstreams.a.url`: expected the URL of the LangGraph server",
    ),
    (
        "upstreams.NAME.url",
        "upstreams.a.url = ''",
        "`upstreams.a.url` in $FILE is ; expected an absolute URL",
    ),
    ("upstreams.NAME.url", "upstreams.a = '$URL'", "`upstreams.a` in $FILE: expected a table"),
    (
        "upstreams.NAME.url",
        "upstreams.'a b'.url = '$URL'",
        "`upstreams.a b`: expected a name of letters",
    ),
    (
        "upstreams.NAME.url",
        "upstream.url = '$URL'\nupstreams.a.url = '$URL'",
        "`upstreams.a`: expected either `upstream` or",
    ),
    (
        "upstreams.NAME.api_key",
        "upstreams.a = {url = '$URL', api_key = 'a b'}",
        "`upstreams.a.api_key` in $FILE: expected a key",
    ),
    (
        "upstreams.NAME.forward_identity",
        "upstreams.a = {url = '$URL', forward_identity = 'no'}",
        "`upstreams.a.forward_identity` in $FILE is no; expected `true` or `false`",
    ),
    (
        "upstreams.NAME.forward_identity",
        "auth.mode = 'upstream'\nupstreams.a.url = '$URL'\nupstreams.b.url = '$URL'",
        "`auth.mode` in $FILE is upstream; expected callers' own credentials to be sent to every upstream",
    ),
    // What clients get.
    ("emit.state", "emit.state = 'deltas'", "`emit.state` in $FILE is deltas; expected `delta` or"),
    (
        "emit.messages",
        "emit.messages = 'never'",
        "`emit.messages` in $FILE is never; expected `when_needed` or",
    ),
    (
        "emit.tool_results",
        "emit.tool_results = 'no'",
        "`emit.tool_results` in $FILE is no; expected `true`",
    ),
    (
        "emit.max_tool_result_bytes",
        "emit.max_tool_result_bytes = -1",
        "`emit.max_tool_result_bytes` in $FILE is -1; expected a whole",
    ),
    (
        "emit.max_event_bytes",
        "emit.max_event_bytes = '1 MB'",
        "`emit.max_event_bytes` in $FILE is 1 MB; expected a whole",
    ),
    (
        "emit.reasoning",
        "emit.reasoning = 'off'",
        "`emit.reasoning` in $FILE is off; expected `show` or `hide`",
    ),
    ("emit.steps", "emit.steps = 1", "`emit.steps` in $FILE is 1; expected `true` or `false`"),
    (
        "emit.activities",
        "emit.activities = 1",
        "`emit.activities` in $FILE is 1; expected `true` or `false`",
    ),
    (
        "emit.subagents",
        "emit.subagents = 'none'",
        "`emit.subagents` in $FILE is none; expected `attributed` or",
    ),
    ("emit.raw", "emit.raw = 1", "`emit.raw` in $FILE is 1; expected `true` or `false`"),
    (
        "emit.raw",
        "emit.raww = true",
        "`emit.raww` in $FILE: expected a key of config.toml.example, such as `emit.raw`",
    ),
    ("agents.NAME.agent", "agents.a = ''", "`agents.a` in $FILE: expected the name of the agent"),
    (
        "agents.NAME.agent",
        "agents.'a/b' = 'agent'",
        "`agents.a/b` in $FILE: expected a name without `/`",
    ),
    (
        "agents.NAME.agent",
        "agents.a.agent = 1",
        "`agents.a.agent` in $FILE is 1; expected a string",
    ),
    (
        "agents.NAME.agent",
        "agents.a.agnt = 'agent'",
        "`agents.a.agnt` in $FILE: expected a key of config.toml.example, such as `agents.a.agent`",
    ),
    (
        "agents.NAME.agent",
        "agents.help = 'agnt'",
        "alias help: there is no agent `agnt`; the nearest name is `agent`",
    ),
    (
        "agents.NAME.agent",
        "agents.help.agent = 'agnt'",
        "alias help: there is no agent `agnt`; the nearest name is `agent`",
    ),
    (
        "agents.NAME.agent",
        "upstreams.a.url = '$URL'\nupstreams.b.url = '$URL'\nagents.x = 'agent'",
        "`agents.x` in $FILE is agent; expected an agent of an upstream: `a:..` or `b:..`",
    ),
    (
        "agents.NAME.messages_key",
        "agents.agent.messages_key = ''",
        "`agents.agent.messages_key` in $FILE is ; expected the name",
    ),
    (
        "agents.NAME.messages_key",
        "agents.agent.messages_key = 'nope'",
        "upstream default: agent: the messages of clients do not reach .. no key `nope`, but `messages`",
    ),
    (
        "agents.NAME.messages_key",
        "agents.help = {agent = 'agent', messages_key = 'nope'}",
        "upstream default: help, agent: the messages of clients do not reach .. no key `nope`",
    ),
    (
        "agents.NAME.messages_key",
        "agents.agnt.messages_key = 'messages'",
        "agents.agnt: there is no agent `agnt`; the nearest",
    ),
    (
        "agents.NAME.messages_key",
        "agents.agent.message_key = 'x'",
        "`agents.agent.message_key` in $FILE: expected a key .. such as `agents.agent.messages_key`",
    ),
    (
        "agents.NAME.emit.reasoning",
        "agents.agent.emit.reasoning = 'off'",
        "`agents.agent.emit.reasoning` in $FILE is off; expected",
    ),
    (
        "agents.NAME.emit.reasoning",
        "agents.agnt.emit.reasoning = 'hide'",
        "agents.agnt: there is no agent `agnt`; the nearest name is `agent`",
    ),
    (
        "agents.NAME.emit.reasoning",
        "agents.agent.emit.reson = 'hide'",
        "`agents.agent.emit.reson` in $FILE: expected a key",
    ),
    (
        "agents.NAME.emit.reasoning",
        "agents.agent.emits.reasoning = 'hide'",
        "`agents.agent.emits.reasoning` in $FILE: expected a key",
    ),
    // Limits.
    (
        "limits.body_bytes",
        "limits.body_bytes = 0",
        "`limits.body_bytes` in $FILE is 0; expected a whole number between 1 and",
    ),
    (
        "limits.header_bytes",
        "limits.header_bytes = 100",
        "`limits.header_bytes` in $FILE is 100; expected a whole number between 8192",
    ),
    (
        "limits.header_timeout_seconds",
        "limits.header_timeout_seconds = 0",
        "`limits.header_timeout_seconds` in $FILE is 0; expected a whole",
    ),
    (
        "limits.connections",
        "limits.connections = 0",
        "`limits.connections` in $FILE is 0; expected a whole number between 1 and",
    ),
    ("limits.connections", "limits = 5", "`limits` in $FILE: expected a table"),
    (
        "limits.connections",
        "limits.conections = 5",
        "`limits.conections` in $FILE: expected a key of config.toml.example, such as `limits.connections`",
    ),
    ("limits.connections", "[limit]", "`limit` in $FILE: expected a key of config.toml.example"),
    (
        "limits.connections_per_peer",
        "limits.connections_per_peer = 0",
        "`limits.connections_per_peer` in $FILE is 0; expected a whole",
    ),
    (
        "limits.connections_per_peer",
        "limits = {connections = 10, connections_per_peer = 100}",
        "`limits.connections_per_peer` in $FILE is 100; expected at most `limits.connections`, which is 10",
    ),
    (
        "limits.log_bytes",
        "limits.log_bytes = -1",
        "`limits.log_bytes` in $FILE is -1; expected a whole number between 0 and",
    ),
    (
        "limits.owner_grace_seconds",
        "limits.owner_grace_seconds = 3601",
        "`limits.owner_grace_seconds` in $FILE is 3601; expected a whole",
    ),
    (
        "limits.requests_per_second",
        "limits.requests_per_second = 0",
        "`limits.requests_per_second` in $FILE is 0; expected a whole",
    ),
    (
        "limits.request_burst",
        "limits.request_burst = 5",
        "`limits.request_burst` in $FILE is 5; expected `limits.requests_per_second` beside it",
    ),
    (
        "limits.request_burst",
        "limits = {requests_per_second = 1, request_burst = 0}",
        "`limits.request_burst` in $FILE is 0; expected a whole number between 1 and",
    ),
    (
        "limits.streams_per_caller",
        "limits.streams_per_caller = 0",
        "`limits.streams_per_caller` in $FILE is 0; expected a whole",
    ),
    (
        "limits.recursion_limit",
        "limits.recursion_limit = 0",
        "`limits.recursion_limit` in $FILE is 0; expected a whole",
    ),
    // Editors.
    ("acp.agent", "acp = 1", "`acp` in $FILE: expected a table"),
    (
        "acp.agent",
        "acp.agent = 'agnt'",
        "acp.agent: there is no agent `agnt`; the nearest name is `agent`",
    ),
    ("acp.agent", "acp.agent = ''", "`acp` in $FILE: expected `agent`: the name of an agent"),
    ("acp.agent", "acp.agnt = 'agent'", "`acp` in $FILE: expected a table .. unknown field `agnt`"),
    (
        "acp.prompt",
        "acp.prompt = ['video']",
        "`acp` in $FILE: expected a table .. unknown variant `video`",
    ),
    ("acp.paths", "acp.paths = 'here'", "`acp` in $FILE: expected `paths`: "),
    (
        "acp.forward_mcp_servers",
        "acp.forward_mcp_servers = ''",
        "`acp` in $FILE: expected `forward_mcp_servers`: a key of the graph's own",
    ),
    (
        "acp.forward_mcp_servers",
        "acp.forward_mcp_servers = 'thread_id'",
        "`acp` in $FILE: expected `forward_mcp_servers`: a key of the graph's own .. thread_id",
    ),
    (
        "acp.forward_mcp_secrets",
        "acp.forward_mcp_secrets = true",
        "`acp` in $FILE: expected `forward_mcp_servers` beside",
    ),
    (
        "acp.context_windows.NAME",
        "acp.context_windows.a = 0",
        "`acp` in $FILE: expected `context_windows.\"a\"`: a number of tokens",
    ),
    (
        "acp.context_windows.NAME",
        "acp.context_windows.a = 'x'",
        "`acp` in $FILE: expected a table .. context_windows.a",
    ),
    (
        "acp.context_windows.NAME",
        "acp.context_windows = {'*' = 1, 'a' = 2}",
        "`acp` in $FILE: expected `context_windows`: `a` before `*`, which matches every name",
    ),
    (
        "acp.tool_kinds.NAME",
        "acp.tool_kinds.a = 'juggle'",
        "`acp` in $FILE: expected `tool_kinds.\"a\"`: .. juggle",
    ),
    ("acp.tool_kinds.NAME", "acp.tool_kinds.'' = 'read'", "`acp` in $FILE: expected `tool_kinds`"),
    (
        "acp.tool_kinds.NAME",
        "acp.tool_kinds = {'*' = 'read', a = 'edit'}",
        "`acp` in $FILE: expected `tool_kinds`: `a` before `*`",
    ),
    (
        "acp.permissions.NAME",
        "acp.permissions.a = 'maybe'",
        "`acp` in $FILE: expected a table .. unknown variant `maybe`",
    ),
    (
        "acp.permissions.NAME",
        "acp.permissions = {'*' = 'allow', rm = 'reject'}",
        "`acp` in $FILE: expected `permissions`: `rm` before `*`",
    ),
    (
        "acp.commands.NAME.description",
        "acp.commands.a.hint = 'x'",
        "`acp` in $FILE: expected a table .. missing field `description`",
    ),
    (
        "acp.commands.NAME.description",
        "acp.commands.'a b'.description = 'x'",
        "`acp` in $FILE: expected a command's name without spaces",
    ),
    (
        "acp.commands.NAME.hint",
        "acp.commands.a = {description = 'x', hint = 1}",
        "`acp` in $FILE: expected a table .. acp.commands.a.hint",
    ),
    (
        "acp.commands.NAME.prompt",
        "acp.commands.a = {description = 'x', hint = 'which', prompt = 'Go.'}",
        "`acp` in $FILE: expected `{args}` in `commands.a.prompt`",
    ),
    (
        "acp.commands.NAME.prompt",
        "acp.commands.a = {description = 'x', prompt = 1}",
        "`acp` in $FILE: expected a table .. commands.a.prompt",
    ),
    (
        "acp.modes.NAME.name",
        "acp.modes.a.name = 1",
        "`acp` in $FILE: expected a table .. modes.a.name",
    ),
    (
        "acp.modes.NAME.name",
        "acp.modes.''.name = 'x'",
        "`acp` in $FILE: expected `modes`: a name for each mode",
    ),
    (
        "acp.modes.NAME.description",
        "acp.modes.a.description = 1",
        "`acp` in $FILE: expected a table .. modes.a.description",
    ),
    (
        "acp.modes.NAME.assistant",
        "acp.modes.a.assistant = 'agnt'",
        "acp.modes.a.assistant: there is no agent `agnt`; the nearest name is `agent`",
    ),
    (
        "acp.modes.NAME.assistant",
        "acp.modes.a.assistant = ''",
        "`acp` in $FILE: expected `modes.a.assistant`: the name of an agent",
    ),
    (
        "acp.modes.NAME.configurable",
        "acp.modes.a.configurable = 1",
        "`acp` in $FILE: expected a table .. modes.a.configurable",
    ),
    (
        "acp.modes.NAME.configurable",
        "acp.modes.a.configurable.thread_id = 'x'",
        "`acp` in $FILE: expected `modes.a.configurable`: keys of the graph's own; LangGraph itself sets `thread_id`",
    ),
    (
        "acp.modes.NAME.permissions",
        "acp.modes.a.permissions.x = 'maybe'",
        "`acp` in $FILE: expected a table .. unknown variant `maybe`",
    ),
    (
        "acp.modes.NAME.permissions",
        "acp.modes.a.permissions = {'*' = 'allow', rm = 'reject'}",
        "`acp` in $FILE: expected `modes.a.permissions`: `rm` before `*`",
    ),
    // The file.
    ("", "listen_on = 'x'", "`listen_on` in $FILE: expected a key of config.toml.example"),
    ("", "listen = 'x", "$FILE: expected TOML ("),
];

/// Mistakes on the command line and in variables: the flag, the arguments after `threadway`, the
/// variables, and what is printed. `check` is given a server if it names none. At `$TAKEN` somebody
/// else listens.
const OF_FLAGS: &[(&str, &[&str], &[(&str, &str)], &str)] = &[
    (
        "--log",
        &["check", "--log", "infoo"],
        &[],
        "--log (THREADWAY_LOG) is infoo; expected a level",
    ),
    (
        "--log",
        &["check"],
        &[("THREADWAY_LOG", "infoo")],
        "--log (THREADWAY_LOG) is infoo; expected",
    ),
    (
        "--log",
        &["demo", "--log", "infoo", "--listen", "$TAKEN"],
        &[],
        "--log (THREADWAY_LOG) is infoo; expected a level",
    ),
    (
        "--log",
        &["watch", "t", "--once", "--log", "infoo"],
        &[],
        "--log (THREADWAY_LOG) is infoo; expected a level",
    ),
    (
        "--log",
        &["translate", "--to", "agui", "--log", "infoo"],
        &[],
        "--log (THREADWAY_LOG) is infoo; expected",
    ),
    (
        "--log",
        &["acp", "--upstream", "$URL", "--log", "infoo"],
        &[],
        "--log (THREADWAY_LOG) is infoo; expected",
    ),
    (
        "--upstream",
        &["check", "--upstream", "localhost"],
        &[],
        "--upstream (THREADWAY_UPSTREAM) is localhost; expected an absolute URL",
    ),
    (
        "--upstream",
        &["check", "--upstream", "http://127.0.0.1:8484"],
        &[],
        "--upstream (THREADWAY_UPSTREAM) is http://127.0.0.1:8484; expected the URL of another server",
    ),
    (
        "--upstream",
        &["acp", "--upstream", "localhost"],
        &[],
        "--upstream (THREADWAY_UPSTREAM) is localhost; expected an absolute URL",
    ),
    (
        "--upstream-api-key",
        &["check", "--upstream-api-key", "a b"],
        &[],
        "--upstream-api-key (THREADWAY_UPSTREAM_API_KEY): expected a key",
    ),
    (
        "--listen",
        &["check", "--listen", "localhost"],
        &[],
        "--listen (THREADWAY_LISTEN) is localhost; expected an address",
    ),
    (
        "--listen",
        &["check", "--listen", "192.0.2.1:1", "--insecure"],
        &[],
        "cannot listen on 192.0.2.1:1: .. choose another with --listen",
    ),
    (
        "--listen",
        &["demo", "--listen", "localhost"],
        &[],
        "--listen (THREADWAY_LISTEN) is localhost; expected an address",
    ),
    (
        "--config",
        &["check", "--config", "/no/such/file"],
        &[],
        "--config (THREADWAY_CONFIG) is /no/such/file; expected a file that can be read",
    ),
    (
        "--admin-listen",
        &["check", "--admin-listen", "x"],
        &[],
        "--admin-listen (THREADWAY_ADMIN_LISTEN) is x; expected an address",
    ),
    (
        "--admin-listen",
        &["check", "--listen", ":18484", "--admin-listen", ":18484"],
        &[],
        "--admin-listen (THREADWAY_ADMIN_LISTEN) is :18484; expected another address",
    ),
    (
        "--auth-mode",
        &["check", "--auth-mode", "keys"],
        &[],
        "--auth-mode (THREADWAY_AUTH_MODE) is keys; expected `none` or",
    ),
    (
        "--auth-keys",
        &["check", "--auth-keys", "a=0123456789abcdef"],
        &[],
        "--auth-keys (THREADWAY_AUTH_KEYS): expected `auth.mode` bearer .. lets everyone in",
    ),
    (
        "--auth-keys",
        &["check"],
        &[("THREADWAY_AUTH_KEYS", "a=0123456789abcdef")],
        "--auth-keys (THREADWAY_AUTH_KEYS): expected `auth.mode` bearer",
    ),
    (
        "--auth-keys",
        &["check", "--auth-mode", "bearer", "--auth-keys", "a"],
        &[],
        "--auth-keys (THREADWAY_AUTH_KEYS): expected NAME=KEY",
    ),
    (
        "--auth-keys-file",
        &["check"],
        &[("THREADWAY_AUTH_KEYS_FILE", "/no/keys")],
        "--auth-keys-file (THREADWAY_AUTH_KEYS_FILE): expected `auth.mode` bearer",
    ),
    (
        "--auth-keys-file",
        &["check", "--auth-mode", "bearer", "--auth-keys-file", "/no/keys"],
        &[],
        "--auth-keys-file (THREADWAY_AUTH_KEYS_FILE) is /no/keys; expected a file",
    ),
    (
        "--auth-jwks",
        &["check", "--auth-jwks", "https://id.example.com/k"],
        &[],
        "--auth-jwks (THREADWAY_AUTH_JWKS): expected `auth.mode` jwt",
    ),
    (
        "--auth-issuer",
        &["check"],
        &[("THREADWAY_AUTH_ISSUER", "i")],
        "--auth-issuer (THREADWAY_AUTH_ISSUER): expected `auth.mode` jwt",
    ),
    (
        "--auth-audience",
        &["check", "--auth-audience", "a"],
        &[],
        "--auth-audience (THREADWAY_AUTH_AUDIENCE): expected `auth.mode` jwt",
    ),
    (
        "--cors-origins",
        &["check", "--cors-origins", "localhost:1"],
        &[],
        "--cors-origins (THREADWAY_CORS_ORIGINS) is localhost:1; expected `*`",
    ),
    (
        "--cors-origins",
        &["demo", "--cors-origins", "localhost:1"],
        &[],
        "--cors-origins (THREADWAY_CORS_ORIGINS) is localhost:1; expected `*`",
    ),
    (
        "--hosts",
        &["check", "--hosts", "a:1"],
        &[],
        "--hosts (THREADWAY_HOSTS) is a:1; expected a name",
    ),
    (
        "--insecure",
        &["check"],
        &[("THREADWAY_INSECURE", "maybe")],
        "invalid value 'maybe' for '--insecure'",
    ),
    (
        "--error-detail",
        &["check", "--error-detail", "all"],
        &[],
        "--error-detail (THREADWAY_ERROR_DETAIL) is all; expected `full`",
    ),
    (
        "--otlp-endpoint",
        &["check", "--otlp-endpoint", "c"],
        &[],
        "--otlp-endpoint (THREADWAY_OTLP_ENDPOINT) is c; expected an absolute URL",
    ),
    (
        "--page",
        &["check", "--page=yes"],
        &[],
        "--page (THREADWAY_PAGE) is yes; expected `true` or `false`",
    ),
    (
        "--audit-log",
        &["check", "--audit-log", "/no/such/folder/a"],
        &[],
        "--audit-log (THREADWAY_AUDIT_LOG) is /no/such/folder/a; expected a place that can be written",
    ),
    (
        "--record",
        &["check", "--record", "/proc/no"],
        &[],
        "--record (THREADWAY_RECORD) is /proc/no; expected a place that can be written",
    ),
    (
        "--watch-config",
        &["check", "--watch-config"],
        &[],
        "--watch-config (THREADWAY_WATCH_CONFIG) is true; expected a file to watch",
    ),
    (
        "--limit-body-bytes",
        &["check", "--limit-body-bytes", "1M"],
        &[],
        "--limit-body-bytes (THREADWAY_LIMIT_BODY_BYTES) is 1M; expected a whole",
    ),
    (
        "--limit-header-bytes",
        &["check", "--limit-header-bytes", "1"],
        &[],
        "--limit-header-bytes (THREADWAY_LIMIT_HEADER_BYTES) is 1; expected",
    ),
    (
        "--limit-header-timeout-seconds",
        &["check", "--limit-header-timeout-seconds", "0"],
        &[],
        "--limit-header-timeout-seconds (THREADWAY_LIMIT_HEADER_TIMEOUT_SECONDS) is 0;",
    ),
    (
        "--limit-connections",
        &["check", "--limit-connections", "0"],
        &[],
        "--limit-connections (THREADWAY_LIMIT_CONNECTIONS) is 0; expected",
    ),
    (
        "--limit-log-bytes",
        &["check", "--limit-log-bytes", "x"],
        &[],
        "--limit-log-bytes (THREADWAY_LIMIT_LOG_BYTES) is x; expected",
    ),
    (
        "--limit-requests-per-second",
        &["check", "--limit-requests-per-second", "0"],
        &[],
        "--limit-requests-per-second (THREADWAY_LIMIT_REQUESTS_PER_SECOND) is 0; expected",
    ),
    (
        "--limit-streams-per-caller",
        &["check", "--limit-streams-per-caller", "0"],
        &[],
        "--limit-streams-per-caller (THREADWAY_LIMIT_STREAMS_PER_CALLER) is 0; expected",
    ),
    (
        "",
        &["check"],
        &[("THREADWAY_AUTH_KEY", "x")],
        "THREADWAY_AUTH_KEY: expected a variable that threadway reads, such as THREADWAY_AUTH_KEYS",
    ),
    // Other commands.
    (
        "--langgraph-listen",
        &["demo", "--langgraph-listen", "x", "--listen", "$TAKEN"],
        &[],
        "--langgraph-listen is x; expected an address",
    ),
    ("--agent", &["acp", "--upstream", "$URL", "--agent", "agnt"], &[], "there is no agent `agnt`"),
    (
        "--agent",
        &["watch", "t", "--once", "--agent", "a/b", "--gateway", "x"],
        &[],
        "--gateway (THREADWAY_GATEWAY): `x` is not",
    ),
    (
        "--gateway",
        &["acp", "--gateway", "x"],
        &[],
        "--gateway (THREADWAY_GATEWAY): `x` is not a URL",
    ),
    (
        "--gateway",
        &["acp", "--gateway", "http://127.0.0.1:1", "--upstream", "$URL"],
        &[],
        "--gateway (THREADWAY_GATEWAY) and --upstream (THREADWAY_UPSTREAM) exclude each other",
    ),
    (
        "--gateway",
        &["acp", "--gateway", "http://127.0.0.1:1", "--upstream-api-key", "k"],
        &[],
        "--gateway (THREADWAY_GATEWAY) and --upstream-api-key (THREADWAY_UPSTREAM_API_KEY) exclude each other",
    ),
    (
        "--gateway-token",
        &["acp", "--gateway-token", "t", "--upstream", "$URL"],
        &[],
        "--gateway-token (THREADWAY_GATEWAY_TOKEN): expected --gateway with it",
    ),
    (
        "--print-config",
        &["acp", "--print-config", "vi"],
        &[],
        "invalid value 'vi' for '--print-config",
    ),
    (
        "--login",
        &["acp", "--login", "--upstream", "localhost"],
        &[],
        "--upstream (THREADWAY_UPSTREAM) is localhost; expected",
    ),
    (
        "--api-key",
        &["watch", "t", "--once", "--api-key", "k", "--header", "authorization:x"],
        &[],
        "--api-key is sent as `authorization`; leave out",
    ),
    (
        "--header",
        &["watch", "t", "--once", "--header", "x"],
        &[],
        "--header (THREADWAY_HEADER): expected NAME:VALUE",
    ),
    ("--timeout", &["watch", "t", "--once", "--timeout", "soon"], &[], "--timeout"),
    ("--to", &["translate", "--to", "mcp"], &[], "invalid value 'mcp' for '--to"),
    (
        "--input",
        &["translate", "--to", "agui", "--input", "/no/such/file"],
        &[],
        "--input /no/such/file: No such file",
    ),
    (
        "--input",
        &["translate", "--to", "acp", "--input", "/no/such/file"],
        &[],
        "--input: ACP has none",
    ),
    (
        "--cwd",
        &["translate", "--to", "agui", "--cwd", "/"],
        &[],
        "--cwd: AG-UI has none; expected --to acp",
    ),
    (
        "--messages-key",
        &["translate", "--to", "agui", "--messages-key", "__x"],
        &[],
        "invalid value '__x' for '--messages-key",
    ),
];

/// Flags that no value can make wrong: switches without a variable, and texts that may be any.
const NEVER_WRONG: [&str; 7] =
    ["--help", "--json", "--ndjson", "--no-color", "--once", "--run-id", "--thread-id"];

/// A row, and how its command ended.
struct Refused {
    row: String,
    expected: String,
    output: Output,
}

impl Refused {
    /// Runs `threadway` with these arguments and variables.
    async fn run(
        row: String,
        arguments: Vec<String>,
        variables: Vec<(String, String)>,
        expected: String,
    ) -> Self {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let variables: Vec<_> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let output = ended(&arguments, &variables).await;
        Self { row, expected, output }
    }

    /// What is wrong with the refusal.
    fn complaint(&self) -> Option<String> {
        let Self { row, expected, output } = self;
        let said = stderr(output) + &stdout(output);
        let is_expected = said.lines().any(|line| is_of(line, expected));
        let is_refused = matches!(output.status.code(), Some(1 | 64));
        (!is_expected || !is_refused)
            .then(|| format!("{row}\n  expected {expected}\n  {} {said}", output.status))
    }
}

/// Whether a line has these words. ` .. ` stands for any text.
fn is_of(line: &str, words: &str) -> bool {
    let mut rest = Some(line);
    for piece in words.split(" .. ") {
        rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, rest)| rest);
    }
    rest.is_some()
}

/// The keys of config.toml.example. `NAME` stands for names that an operator chooses.
fn keys() -> BTreeSet<String> {
    fn read(table: &Table, above: &str, found: &mut BTreeSet<String>) {
        for (name, value) in table {
            let is_chosen = matches!(
                above,
                "upstreams."
                    | "agents."
                    | "auth.keys."
                    | "upstream.headers."
                    | "acp.modes."
                    | "acp.commands."
                    | "acp.context_windows."
                    | "acp.tool_kinds."
                    | "acp.permissions."
            );
            let name = if is_chosen { "NAME" } else { name };
            let key = format!("{above}{name}");
            match value {
                Value::Table(inner) if !above.starts_with("acp.modes.") => {
                    read(inner, &format!("{key}."), found);
                }
                _ => {
                    found.insert(key);
                }
            }
        }
    }
    let example = include_str!("../../config.toml.example").replace("#: ", "");
    let mut found = BTreeSet::new();
    read(&example.parse().unwrap(), "", &mut found);
    found
}

#[test]
fn each_key_and_each_flag_has_a_row() {
    let keys = keys();
    assert!(keys.len() > 90, "{keys:?}");
    let of_rows: BTreeSet<_> = OF_FILES.iter().map(|(key, ..)| (*key).to_owned()).collect();
    let missing: Vec<_> = keys.difference(&of_rows).collect();
    assert!(missing.is_empty(), "keys without a row in this file: {missing:?}");
    let unknown: Vec<_> = of_rows.difference(&keys).filter(|key| !key.is_empty()).collect();
    assert!(unknown.is_empty(), "keys that config.toml.example does not have: {unknown:?}");

    let command = Cli::command();
    let all = std::iter::once(&command).chain(command.get_subcommands());
    let flags = all.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long);
    let flags: BTreeSet<_> = flags.map(|flag| format!("--{flag}")).collect();
    let known = OF_FLAGS.iter().map(|(flag, ..)| *flag).chain(NEVER_WRONG);
    let known: BTreeSet<_> = known.filter(|flag| !flag.is_empty()).map(str::to_owned).collect();
    let missing: Vec<_> = flags.difference(&known).collect();
    assert!(missing.is_empty(), "flags without a row in this file: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_a_file_is_refused_by_check_and_at_the_start() {
    let server = Server::answering(200).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut running = JoinSet::new();
    for (_, text, expected) in OF_FILES {
        let names_server = text.replace("'upstream'", "").contains("upstream");
        let server_first = if names_server { "" } else { "upstream.url = '$URL'\n" };
        let named = format!("{server_first}{text}");
        let file = File::new("");
        let filled = |text: &str| text.replace("$URL", &server.url).replace("$FILE", file.path());
        file.write(&filled(&named));
        let expected = filled(expected);
        let taken = taken.clone();
        running.spawn(async move {
            let arguments = |command: &[&str]| {
                let arguments = [command, &["--config", file.path()]].concat();
                arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
            };
            let check =
                Refused::run(named.clone(), arguments(&["check"]), Vec::new(), expected.clone());
            let check = check.await;
            // `serve` ends with another code and other words if it accepts the rest: the address is
            // in use.
            let is_of_machine = named.contains("audit_log") || named.contains("record.dir");
            let is_of_both = (check.output.status.code() == Some(64) || is_of_machine)
                && !named.contains("listen");
            let serve = if is_of_both {
                let row = format!("serve: {named}");
                let arguments = arguments(&["serve", "--listen", &taken]);
                Some(Refused::run(row, arguments, Vec::new(), expected).await)
            } else {
                None
            };
            drop(file);
            [Some(check), serve]
        });
    }
    assert_all_are_refused(running.join_all().await.into_iter().flatten().flatten());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_a_flag_is_refused() {
    let server = Server::answering(200).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut running = JoinSet::new();
    for (_, arguments, variables, expected) in OF_FLAGS {
        let filled =
            |argument: &&str| argument.replace("$URL", &server.url).replace("$TAKEN", &taken);
        let mut filled: Vec<_> = arguments.iter().map(filled).collect();
        let has_server =
            arguments.iter().any(|argument| matches!(*argument, "--upstream" | "--config"));
        if arguments.first() == Some(&"check") && !has_server {
            filled.extend(["--upstream".to_owned(), server.url.clone()]);
        }
        let row = format!("{arguments:?} {variables:?}");
        let variables = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        running.spawn(Refused::run(row, filled, variables, (*expected).to_owned()));
    }
    assert_all_are_refused(running.join_all().await);
}

fn assert_all_are_refused(all: impl IntoIterator<Item = Refused>) {
    let complaints: Vec<_> = all.into_iter().filter_map(|row| row.complaint()).collect();
    let count = complaints.len();
    assert!(complaints.is_empty(), "{count} mistakes:\n{}", complaints.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_by_a_try() {
    let server = Server::answering(200).await;
    let file = File::new("");
    std::fs::remove_file(&file.0).unwrap();
    std::fs::create_dir(&file.0).unwrap();
    let (audit, record) = (format!("{}/audit", file.path()), format!("{}/a/b", file.path()));
    let arguments =
        ["check", "--upstream", &server.url, "--audit-log", &audit, "--record", &record];
    let output = ended(&arguments, &[]).await;
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(std::fs::read_dir(&file.0).unwrap().count(), 0);
    std::fs::remove_dir(&file.0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_warns_of_agents_and_keys_that_do_not_exist() {
    let server = Arc::new(Server::answering(200).await);
    let file = File::new(&format!(
        "upstream.url = '{}'\n[agents.agnt.emit]\nreasoning = 'hide'\n[agents.agent]\n\
         messages_key = 'nope'\n",
        server.url
    ));
    let mut process = Process::serve(&["--config", file.path()]).await;
    let said = process.says("agents.agnt: there is no agent `agnt`").await;
    assert!(said.contains("WARN") && said.contains("the nearest name is `agent`"), "{said}");
    let said = process.says("its input has no key `nope`, but `messages`").await;
    assert!(said.contains("WARN") && said.contains("agent=\"agent\""), "{said}");
    process.stop().await;
}
