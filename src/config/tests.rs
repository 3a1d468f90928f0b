//! The order of the sources, and every mistake.

use std::num::{NonZeroU32, NonZeroUsize};

use super::*;
use crate::server::{
    Compression, Cors, Credentials, DEFAULT_SKEW, ForwardedHeaders, Page, Rates, RequestRate,
    ThreadRoutePolicy, UpstreamAuth,
};
use crate::sessions;
use crate::upstream::{Caller, MAX_ADDRESSES, OnThreadNotFound};
use threadway_translate::acp::ToolKind;
use threadway_translate::acp::mcp::Secrets;
use threadway_translate::acp::permission::Rule;
use threadway_translate::agui::{Allowance, LostThread, OnMessage, SystemMessages};
use threadway_translate::langgraph::{ErrorDetail, Multitask};
use threadway_translate::run::{EmitOptions, Harness, StateEvents};

const EXAMPLE: &str = include_str!("../../config.toml.example");

fn of_toml(text: &str) -> (Raw, Vec<String>) {
    let raw = Raw::of_toml("f.toml", text);
    let mistakes = texts(&raw.mistakes);
    (raw, mistakes)
}

/// The configuration of a file without flags.
fn checked(text: &str) -> Result<Config, Vec<String>> {
    over(&Options::default(), text)
}

fn over(options: &Options, text: &str) -> Result<Config, Vec<String>> {
    let mut file = Raw::of_toml("f.toml", text);
    file.files.push(PathBuf::from("f.toml"));
    let mut raw = Raw::of_flags(options, None).over(file);
    match raw.check(FallbackServer::Refused) {
        Some(config) if raw.mistakes.is_empty() => Ok(config),
        Some(_) | None => Err(texts(&raw.mistakes)),
    }
}

fn texts(mistakes: &[ConfigError]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn several_addresses_of_an_upstream_are_a_list_without_repeats() {
    let urls = |text: &str| {
        let config = checked(text).unwrap();
        let several = |upstream: &Upstream| {
            let all = std::iter::once(&upstream.url).chain(&upstream.other_urls);
            all.map(ToString::to_string).collect::<Vec<_>>()
        };
        config.upstreams.iter().map(several).collect::<Vec<_>>()
    };
    assert_eq!(urls("upstream.urls = [\"http://a\"]"), [["http://a"]]);
    let two = "upstreams.x.urls = [\"http://a/p\", \"http://b\"]\nupstreams.y.url = \"http://c\"";
    assert_eq!(urls(two), [vec!["http://a/p", "http://b"], vec!["http://c"]]);
    let many = |count: usize| {
        let urls: Vec<_> = (0..count).map(|number| format!("\"http://h{number}\"")).collect();
        format!("upstream.urls = [{}]", urls.join(", "))
    };
    assert_eq!(urls(&many(MAX_ADDRESSES))[0].len(), MAX_ADDRESSES);
    for (text, expected) in [
        (&*many(0), "`upstream.urls` in f.toml: expected a list of 1 to 8 URLs"),
        (&*many(9), "`upstream.urls` in f.toml: expected a list of 1 to 8 URLs"),
        (
            "upstreams.x.urls = [\"http://a\", \"http://b\", \"http://a/\"]",
            "`upstreams.x.urls` in f.toml is http://a/; expected each URL once",
        ),
        (
            "upstream.urls = [\"http://a\", \"b\"]",
            "`upstream.urls` in f.toml is b; expected an absolute URL, as http://127.0.0.1:2024 \
             (relative URL without a base)",
        ),
        (
            "upstream.urls = [\"http://u:secret@a\"]",
            "`upstream.urls` in f.toml: expected a URL without user, password, query and fragment",
        ),
        (
            "upstream = {url = \"http://a\", urls = [\"http://b\"]}",
            "`upstream.urls` in f.toml: expected either `upstream.url` or `upstream.urls`, not both",
        ),
        (
            "upstream.url = \"http://a,http://b\"",
            "`upstream.url` in f.toml: expected one URL; `urls` in the config file takes several",
        ),
    ] {
        let mistakes = checked(text).unwrap_err();
        assert_eq!(mistakes[0], expected, "{text}");
    }
    // An upstream on the command line replaces all addresses of the file.
    let options = Options::default().with("upstream.url", "http://typed");
    let config = over(&options, &many(2)).unwrap();
    assert_eq!(config.upstreams[0].url.to_string(), "http://typed");
    assert_eq!(config.upstreams[0].other_urls, []);
}

#[test]
fn the_example_holds_every_key_with_its_default() {
    let (raw, mistakes) = of_toml(EXAMPLE);
    assert_eq!(mistakes, [""; 0]);
    // The URL has no default; this is where `langgraph dev` listens.
    assert_eq!(raw.given["upstream.url"].value, "http://127.0.0.1:2024");
    let config = checked(EXAMPLE).unwrap();
    assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
    assert_eq!(config.log.to_string(), DEFAULT_LOG);
    assert_eq!(config.settings.limits, Limits::default());
    assert_eq!(raw.given["upstream.messages_key"].value, MessagesKey::default().as_str());
    // Nothing that the example sets differs from what holds without it.
    let bare = checked("upstream.url = \"http://127.0.0.1:2024\"").unwrap();
    // A written policy keeps the gateway from asking about it at the start.
    let written = format!("{:?}", config.settings);
    let written = written.replace("system_messages: Some(Send)", "system_messages: None");
    assert_eq!(written, format!("{:?}", bare.settings));
    let cancels = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("on_owner_disconnect"));
        let text = lines.fold("on_owner_disconnect = \"cancel\"".to_owned(), |a, b| a + "\n" + b);
        checked(&text).unwrap().settings.limits.owners
    };
    assert_eq!(cancels(EXAMPLE), cancels("upstream.url = \"http://u\""));
    let recorded = checked(&EXAMPLE.replace("#: dir = ", "dir = ")).unwrap().record.unwrap();
    assert_eq!((recorded.files, recorded.bytes), (runs::DEFAULT_FILES, runs::DEFAULT_BYTES));
    let skew = DEFAULT_SKEW.as_secs().to_string();
    let of_skew = KEYS.iter().find(|key| key.name == "auth.clock_skew_seconds").unwrap();
    assert!(matches!(of_skew.absent, DefaultValue::Value(value) if value == skew));
    // Keys without a default are in comments.
    let (all, mistakes) = of_toml(&EXAMPLE.replace("#: ", ""));
    assert_eq!(mistakes, [""; 0]);
    assert_eq!(config.emits, Emits::default());
    assert_eq!(config.acp.settings, sessions::Settings::default());
    let Acp { agent, settings } = all.acp;
    assert_eq!(agent.as_deref(), Some("agent"));
    assert_eq!(settings.mcp_key.as_deref(), Some("mcp_servers"));
    assert_eq!(settings.system_prompt_key.as_deref(), Some("client_system_prompt"));
    assert_eq!(settings.mcp_secrets, Secrets::Withheld);
    assert_eq!(settings.unstable, [sessions::Unstable::Cursors]);
    assert_eq!(settings.profile.window("claude-opus"), Some(200_000));
    assert_eq!(settings.profile.kind("run_all"), ToolKind::Execute);
    assert_eq!(settings.profile.always_by_tool.as_ref().map(Vec::len), Some(2));
    assert_eq!(settings.permissions.of("read_file"), Some(Rule::Allow));
    assert_eq!(settings.commands[0].prompt.as_deref(), Some("Review {args}."));
    let modes: Vec<_> = settings.modes.iter().map(|mode| &*mode.id).collect();
    assert_eq!(modes, ["agentic", "interactive", "readonly", "planning"]);
}

#[test]
fn the_table_acp_keeps_its_order_and_names_its_mistakes() {
    let file = "upstream.url = \"http://u\"\n[acp.permissions]\nz = \"allow\"\na = \"reject\"\n\"*\" = \"ask\"";
    let rules = checked(file).unwrap().acp.settings.permissions;
    assert_eq!(rules.of("z"), Some(Rule::Allow));
    assert_eq!(
        rules.0.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(),
        [Rule::Allow, Rule::Reject, Rule::Ask]
    );
    for (table, message) in [
        ("acp = 1", "`acp` in f.toml"),
        ("[acp]\nx = 1", "unknown field `x`"),
        ("[acp]\nprompt = [\"video\"]", "unknown variant `video`"),
        ("[acp]\nunstable = [\"cursor\"]", "unknown variant `cursor`, expected `cursors`"),
        ("[acp]\npaths = \"here\"", "`paths`"),
        ("[acp]\nforward_mcp_secrets = true", "`forward_mcp_servers` beside"),
        ("[acp]\nsystem_prompt_key = \"run_id\"", "`system_prompt_key`"),
        (
            "[acp]\nsystem_prompt_key = \"a\"\nforward_mcp_servers = \"a\"",
            "other than that of `forward_mcp_servers`",
        ),
        ("[acp.tool_kinds]\na = \"juggle\"", "`juggle` is no kind of tool"),
        ("[acp.permissions]\na = \"maybe\"", "unknown variant `maybe`"),
        ("[acp]\nalways_by_tool = [\"\"]", "`always_by_tool`: a pattern is not empty"),
        ("[acp.modes.a]\nconfigurable = 1", "invalid type"),
        ("[acp.commands.\"a b\"]\ndescription = \"x\"", "name without spaces"),
        ("[acp.commands.a]\nhint = \"x\"", "missing field `description`"),
    ] {
        let mistakes = checked(&format!("upstream.url = \"http://u\"\n{table}")).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].contains(message), "{table}: {mistakes:?}");
    }
}

#[test]
fn a_restart_is_needed_for_another_value_and_not_for_another_text() {
    let read = |text: &str| {
        let text = format!("upstream.url = \"http://h\"\n{text}");
        Config { given: of_toml(&text).0.given, ..checked(&text).unwrap() }
    };
    for (old, new, expected) in [
        ("", "listen = \"8484\"", None),
        ("", "listen = \"8485\"", Some("listen")),
        ("admin_listen = \"1\"", "admin_listen = \"127.0.0.1:1\"", None),
        ("", "admin_listen = \"1\"", Some("admin_listen")),
        ("otlp_endpoint = \"http://c\"", "otlp_endpoint = \"http://c:80/\"", None),
        ("otlp_endpoint = \"http://c\"", "otlp_endpoint = \"http://d\"", Some("otlp_endpoint")),
        ("", "log = \"text,info\"", None),
        ("", "log = \"json,info\"", Some("log")),
        ("", "audit_log = \"stderr\"", Some("audit_log")),
        ("", "record.files = 7", None),
        ("", "record.dir = \"d\"", Some("record.dir")),
        ("record.dir = \"d\"", "record = {dir = \"d\", files = 7}", Some("record.files")),
        ("record.dir = \"d\"", "record = {dir = \"d\", bytes = 9000000}", Some("record.bytes")),
        ("", "limits.owner_grace_seconds = 7", None),
        ("", "on_owner_disconnect = \"cancel\"", Some("on_owner_disconnect")),
        (
            "on_owner_disconnect = \"cancel\"",
            "on_owner_disconnect = \"cancel\"\nlimits.owner_grace_seconds = 7",
            Some("limits.owner_grace_seconds"),
        ),
        ("", "limits.log_bytes = 1048576", None),
        ("", "limits.log_bytes = 7", Some("limits.log_bytes")),
        ("", "limits.state_reads_per_second = 7", Some("limits.state_reads_per_second")),
        ("", "error_detail = \"code\"", None),
    ] {
        let (old, new) = (read(old), read(new));
        assert_eq!(old.needs_restart(&new), Vec::from_iter(expected), "{:?}", new.given);
    }
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let options = Options::default().with("listen", "127.0.0.2:2").with("limits.log_bytes", "7");
    let file = "listen = \"127.0.0.1:1\"\nupstream.url = \"http://file\"\n\
                limits.log_bytes = 1\nlimits.connections = 2\nlimits.state_reads_per_second = 3";
    let config = over(&options, file).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.2:2");
    assert_eq!(config.upstreams[0].url.to_string(), "http://file");
    assert_eq!(config.log.filter.to_string(), "info");
    let reads = NonZeroU32::new(3).unwrap();
    let limits = Limits { log_bytes: 7, connections: 2, ..Limits::default() };
    let limits = Limits { state_reads_per_second: reads, ..limits };
    assert_eq!(config.settings.limits, limits);
}

#[test]
fn an_upstream_on_the_command_line_takes_the_place_of_the_files() {
    let options = Options::default().with("upstream.url", "http://typed");
    let one = "upstream = {url = \"http://file\", api_key = \"secret\"}\nagents.a = \"agent\"";
    let config = over(&options, one).unwrap();
    assert_eq!(config.upstreams.len(), 1);
    assert_eq!(config.upstreams[0].url.to_string(), "http://typed");
    // A key goes only to the server that it was given for.
    assert!(config.upstreams[0].api_key.is_none());
    assert_eq!(config.aliases, [("a".to_owned(), "agent".to_owned())]);

    let several = "upstreams.x.url = \"http://x\"\nagents.a = \"x:agent\"";
    let config = over(&options, several).unwrap();
    assert_eq!(config.upstreams[0].url.to_string(), "http://typed");
    assert_eq!(config.aliases, []);
}

#[test]
fn several_upstreams_have_names_and_their_agents_aliases() {
    let file = "[upstreams.cloud]\nurl = \"https://c\"\napi_key = \"k\"\n\
                [upstreams.local]\nurl = \"http://l\"\n[agents]\nhelp = \"cloud:agent\"\n";
    let config = checked(file).unwrap();
    let upstreams = config.upstreams.iter().map(|u| (&*u.name, u.api_key.is_some()));
    assert_eq!(upstreams.collect::<Vec<_>>(), [("cloud", true), ("local", false)]);
    assert_eq!(config.aliases, [("help".to_owned(), "cloud:agent".to_owned())]);
    assert_eq!(
        checked(
            "upstreams.a.url = \"http://a\"\nupstreams.b.url = \"http://b\"\nagents.x = \"c:d\""
        )
        .unwrap_err(),
        ["`agents.x` in f.toml is c:d; expected an agent of an upstream: `a:..` or `b:..`"]
    );
}

#[test]
fn the_first_upstream_of_the_file_is_sent_who_its_callers_are_and_no_other() {
    let sent = |local: &str, cloud: &str| {
        let file = format!(
            "[upstreams.local]\nurl = \"http://l\"\n{local}\n\
             [upstreams.cloud]\nurl = \"http://c\"\n{cloud}\n"
        );
        let config = checked(&file).unwrap();
        let agents = config.agents(&Metrics::default()).unwrap();
        let one = |upstream: &agents::Upstream| (upstream.name.clone(), upstream.client.identity());
        agents.upstreams().iter().map(one).collect::<Vec<_>>()
    };
    let both = |local, cloud| vec![("local".to_owned(), local), ("cloud".to_owned(), cloud)];
    let (yes, no) = ("forward_identity = true", "forward_identity = false");
    let (forwarded, withheld) = (Identity::Forwarded, Identity::Withheld);
    assert_eq!(sent("", ""), both(forwarded, withheld));
    assert_eq!(sent(yes, yes), both(forwarded, forwarded));
    assert_eq!(sent(no, yes), both(withheld, forwarded));
    assert_eq!(sent(no, no), both(withheld, withheld));
}

#[test]
fn callers_that_nobody_checks_for_an_upstream_are_a_mistake() {
    let jwt =
        "auth = {mode = \"jwt\", jwks = \"http://127.0.0.1/k\", issuer = \"i\", audience = \"a\"}";
    let bearer = "auth = {mode = \"bearer\", keys.a = \"0123456789abcdef\"}";
    let (upstream, none) = ("auth.mode = \"upstream\"", "");
    let two = |auth: &str, cloud: &str| {
        let file = format!(
            "{auth}\nupstreams.local.url = \"http://l\"\nupstreams.cloud.url = \"http://c\"\n{cloud}\n"
        );
        checked(&file).err().unwrap_or_default().concat()
    };
    let (yes, no) =
        ("upstreams.cloud.forward_identity = true", "upstreams.cloud.forward_identity = false");
    for (auth, cloud, message) in [
        (upstream, "", Some("the upstream `cloud` is not sent them")),
        (upstream, no, Some("the upstream `cloud` is not sent them")),
        (upstream, yes, None),
        (jwt, "", Some("`forward_identity` in the table of the upstream `cloud`")),
        (jwt, no, None),
        (jwt, yes, None),
        (bearer, "", None),
        (none, "", None),
    ] {
        let mistakes = two(auth, cloud);
        assert_eq!(mistakes.is_empty(), message.is_none(), "{auth} {cloud}: {mistakes}");
        assert!(mistakes.contains(message.unwrap_or_default()), "{auth} {cloud}: {mistakes}");
    }
    let alone =
        "auth.mode = \"upstream\"\nupstream = {url = \"http://u\", forward_identity = false}";
    assert!(checked(alone).unwrap_err().concat().contains("`default` is not sent them"));
}

#[test]
fn streams_are_compressed_only_where_the_file_says_so() {
    let of = |line: &str| checked(&format!("upstream.url = \"http://u\"\n{line}"));
    let compression = |line: &str| of(line).unwrap().settings.compression;
    assert_eq!(compression(""), Compression::Off);
    assert_eq!(compression("compression = \"off\""), Compression::Off);
    assert_eq!(compression("compression = \"on\""), Compression::On);
    assert_eq!(
        of("compression = \"gzip\"").unwrap_err(),
        ["`compression` in f.toml is gzip; expected `off` or `on`"]
    );
}

#[test]
fn all_mistakes_are_reported_at_once_each_with_its_key_value_and_what_was_expected() {
    let text = "listen = 8484\nlisten_on = \"x\"\n[upstream]\nurl = \"localhost\"\napi_key = 1\n\
                [upstreams.\"a b\"]\napi_key = \"\\n\"\n[agents]\n\"a/b\" = \"c\"\n\
                [limits]\nheader_bytes = 100\nconnections = \"none\"\nbody_bytes = 1.5\n";
    let options = Options::default().with("limits.header_timeout_seconds", "0");
    assert_eq!(
        over(&options, text).unwrap_err(),
        [
            "`listen` in f.toml is 8484; expected a string",
            "`listen_on` in f.toml: expected a key of config.toml.example, such as `listen`",
            "`upstream.api_key` in f.toml: expected a string",
            "`limits.body_bytes` in f.toml is 1.5; expected a whole number",
            "`upstreams.a b`: expected either `upstream` or `upstreams.NAME`, not both",
            "`upstream.url` in f.toml is localhost; expected an absolute URL, as \
             http://127.0.0.1:2024 (relative URL without a base)",
            "`upstreams.a b`: expected a name of letters, digits, `-` and `_`",
            "`upstreams.a b.url`: expected the URL of the LangGraph server",
            "`upstreams.a b.api_key` in f.toml: expected a key: visible ASCII characters, at \
             least one",
            "`agents.a/b` in f.toml: expected a name without `/`",
            "`limits.connections` in f.toml is none; expected a whole number between 1 and 1000000",
            "--limit-header-timeout-seconds (THREADWAY_LIMIT_HEADER_TIMEOUT_SECONDS) is 0; \
             expected a whole number between 1 and 3600",
            "`limits.header_bytes` in f.toml is 100; expected a whole number between 8192 and \
             1073741824",
        ]
    );
}

#[test]
fn the_front_is_what_the_file_says() {
    let key = "0123456789abcdef0123456789abcdef";
    let file = format!(
        "upstream = {{url = \"http://u\", headers.X-Region = \"eu\"}}\nlisten = \"0.0.0.0:1\"\n\
         error_detail = \"code\"\nforward_headers = [\"x-tenant\"]\nwatch_config = true\n\
         on_message_while_interrupted = \"reject\"\nmultitask_strategy = \"enqueue\"\n\
         forward_multitask_strategies = [\"interrupt\", \"reject\"]\n\
         input.system_messages = \"drop\"\n\
         input.lost_thread = \"newest\"\n\
         admin_listen = \"127.0.0.1:0\"\notlp_endpoint = \"http://c:4318\"\n\
         [auth]\nmode = \"bearer\"\nunknown_threads = \"empty\"\nkeys = {{a = \"{key}\"}}\n\
         [cors]\norigins = [\"https://a\", \"https://b\"]\ncredentials = true\n\
         [limits]\nrequests_per_second = 5\nstreams_per_caller = 7\n"
    );
    let config = checked(&file).unwrap();
    assert!(!config.is_open && config.is_watched);
    assert_eq!(config.admin_listen, Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(config.otlp_endpoint.map(|url| url.to_string()), Some("http://c:4318".to_owned()));
    assert_eq!(config.upstreams[0].headers["x-region"], "eu");
    let Settings { auth, cors, rates, forward, error_detail, on_message, allowance, .. } =
        config.settings;
    assert!(matches!(auth, Auth::Bearer(keys) if keys.names().eq(["a"])));
    let origins = ["https://a", "https://b"];
    assert_eq!(cors, Cors::new(origins, Credentials::Included).unwrap());
    let often = NonZeroU32::new(5).unwrap();
    let requests = Some(RequestRate { per_second: often, burst: often });
    assert_eq!(rates, Rates { requests, streams: NonZeroUsize::new(7) });
    let mut expected = ForwardedHeaders::default();
    expected.allow("x-tenant").unwrap();
    expected.set_unknown(OnThreadNotFound::Empty);
    assert_eq!(forward, expected);
    assert_eq!(error_detail, ErrorDetail::Code);
    assert_eq!(on_message, OnMessage::Reject);
    let mut expected = Allowance::default();
    expected.when_busy(Multitask::Enqueue);
    expected.allow_when_busy(Multitask::Interrupt);
    expected.allow_when_busy(Multitask::Reject);
    expected.take_system_messages(SystemMessages::Drop);
    expected.when_lost(LostThread::Newest);
    assert_eq!(allowance, expected);
}

#[test]
fn threads_are_listed_where_callers_are_told_apart_or_at_this_machine() {
    let bearer = "auth = {mode = \"bearer\", keys = {a = \"0123456789abcdef\"}}";
    let upstream = "auth.mode = \"upstream\"";
    let open = "listen = \"0.0.0.0:1\"\ninsecure = true";
    for (text, expected) in [
        (String::new(), ThreadRoutePolicy::All),
        // A gateway with host names is behind a proxy.
        ("hosts = [\"chat.example.com\"]".to_owned(), ThreadRoutePolicy::Off),
        (open.to_owned(), ThreadRoutePolicy::Off),
        (bearer.to_owned(), ThreadRoutePolicy::Off),
        (upstream.to_owned(), ThreadRoutePolicy::Callers),
        (format!("{open}\n{upstream}"), ThreadRoutePolicy::Callers),
        (format!("thread_routes = \"all\"\n{bearer}"), ThreadRoutePolicy::All),
        (format!("thread_routes = \"all\"\n{open}"), ThreadRoutePolicy::All),
        (format!("thread_routes = \"callers\"\n{open}"), ThreadRoutePolicy::Off),
        ("thread_routes = \"off\"".to_owned(), ThreadRoutePolicy::Off),
    ] {
        let config = checked(&format!("{text}\nupstream.url = \"http://u\"")).unwrap();
        assert_eq!(config.settings.thread_routes, expected, "{text}");
    }
    let mistakes = checked("thread_routes = \"yes\"\nupstream.url = \"http://u\"").unwrap_err();
    assert!(format!("{mistakes:?}").contains("callers"), "{mistakes:?}");
}

#[test]
fn langgraph_has_to_be_proven_where_others_reach_the_gateway() {
    let file = "auth = {mode = \"upstream\", credential_header = \"X-Api-Key\"}\nupstream.url = \"http://u\"";
    for (more, trust) in [
        ("", Trust::Given),
        ("listen = \"127.0.0.2:1\"", Trust::Given),
        ("listen = \"0.0.0.0:1\"", Trust::Proven),
        ("listen = \"0.0.0.0:1\"\nadmin_insecure = true", Trust::Proven),
        ("listen = \"0.0.0.0:1\"\ninsecure = true", Trust::Given),
    ] {
        let config = checked(&format!("{more}\n{file}")).unwrap();
        let Auth::Upstream(upstream_auth) = config.settings.auth else { panic!() };
        let credential = Some(http::HeaderName::from_static("x-api-key"));
        assert_eq!(upstream_auth, UpstreamAuth { credential, trust }, "{more}");
    }
}

#[test]
fn the_page_is_served_to_this_machine_alone_unless_configured_otherwise() {
    let key = "k".repeat(16);
    let keys = format!("auth = {{mode = \"bearer\", keys = {{a = \"{key}\"}}}}");
    for (file, expected) in [
        ("", Page::On),
        ("listen = \"[::1]:0\"", Page::On),
        ("page = false", Page::Off),
        ("hosts = [\"chat.example.com\"]", Page::Off),
        ("listen = \"0.0.0.0:1\"\ninsecure = true", Page::Off),
        ("listen = \"0.0.0.0:1\"\ninsecure = true\npage = true", Page::On),
        (&*keys, Page::Off),
        (&*format!("page = true\n{keys}"), Page::On),
    ] {
        let config = checked(&format!("upstream.url = \"http://u\"\n{file}")).unwrap();
        assert_eq!(config.settings.page, expected, "{file}");
    }
    let mistakes = checked("page = \"yes\"\nupstream.url = \"http://u\"").unwrap_err();
    assert_eq!(mistakes, ["`page` in f.toml is yes; expected `true` or `false`"]);
}

#[test]
fn clients_set_what_the_file_lists() {
    let file = "forward_configurable = [\"model\"]\nlimits.recursion_limit = 7\nupstream.url = \"http://u\"";
    let mut expected = Allowance::default();
    expected.allow("model").unwrap();
    expected.limit_recursion(7);
    expected.when_lost(LostThread::Restore);
    assert_eq!(checked(file).unwrap().settings.allowance, expected);
    let config = checked("upstream.url = \"http://u\"").unwrap();
    let mut expected = Allowance::default();
    expected.when_lost(LostThread::Restore);
    assert_eq!(config.settings.allowance, expected);
    // Callers of a gateway with keys are not trusted with the agent's words.
    let keys =
        "auth.mode = \"bearer\"\nauth.keys.a = \"0123456789abcdef\"\nupstream.url = \"http://u\"";
    assert_eq!(checked(keys).unwrap().settings.allowance, Allowance::default());
}

#[test]
fn the_demo_stays_on_this_machine_unless_it_is_insecure() {
    for address in ["127.0.0.1:0", "[::1]:0", "127.0.0.2:1"] {
        assert!(demo_address("--listen", address, false).is_ok(), "{address}");
    }
    for address in ["0.0.0.0:0", "[::]:0", "192.168.0.1:1"] {
        assert!(demo_address("--listen", address, true).is_ok(), "{address}");
        let mistake = demo_address("--listen", address, false).unwrap_err().to_string();
        assert!(mistake.contains("since the demo has no `auth`"), "{mistake}");
    }
}

#[test]
fn keys_of_the_environment_take_the_place_of_the_files() {
    let [ours, theirs] = ["0", "1"].map(|digit| digit.repeat(32));
    let options = Options::default().with("auth.keys.NAME", format!("x={ours},y={theirs}"));
    let file =
        format!("upstream.url = \"http://u\"\nauth = {{mode = \"bearer\", keys.z = \"{theirs}\"}}");
    let config = over(&options, &file).unwrap();
    assert!(matches!(config.settings.auth, Auth::Bearer(keys) if keys.names().eq(["x", "y"])));
}

#[test]
fn what_would_let_everybody_in_is_a_mistake() {
    let loopback = "a loopback address, since `auth.mode` is none";
    for (file, message) in [
        ("listen = \"0.0.0.0:1\"", Some(loopback)),
        ("listen = \"[::]:1\"", Some(loopback)),
        ("listen = \"192.168.0.1:1\"\ninsecure = false", Some(loopback)),
        ("listen = \"0.0.0.0:1\"\ninsecure = true", None),
        ("listen = \"127.0.0.2:1\"", None),
        ("listen = \"[::1]:1\"", None),
        ("listen = \"0.0.0.0:1\"\nauth.mode = \"upstream\"", None),
        ("admin_listen = \"0.0.0.0:1\"", Some("the admin listener has no `auth`")),
        (
            "admin_listen = \"[::]:1\"\nauth.mode = \"upstream\"",
            Some("the admin listener has no `auth`"),
        ),
        ("admin_listen = \"0.0.0.0:1\"\ninsecure = true", Some("the admin listener has no `auth`")),
        ("admin_listen = \"0.0.0.0:1\"\nadmin_insecure = true", None),
        ("listen = \"0.0.0.0:1\"\nadmin_insecure = true", Some(loopback)),
        ("cors.origins = \"*\"\nadmin_insecure = true", Some("since `auth.mode` is none")),
        ("admin_listen = \"127.0.0.1:1\"", None),
        (
            "auth = {mode = \"upstream\", credential_header = \"traceparent\"}",
            Some("one of `forward_headers`"),
        ),
        (
            "auth = {mode = \"upstream\", credential_header = \"x-tenant\"}\n\
             forward_headers = [\"X-Tenant\"]",
            None,
        ),
        ("forward_configurable = [\"thread_id\"]", Some("not for clients")),
        ("forward_configurable = [\"X-Tenant\"]", Some("not for clients")),
        ("forward_configurable = [\"model\", \"temperature\"]", None),
        ("limits.recursion_limit = 0", Some("between 1 and 1000000")),
        ("auth.mode = \"upstream\"\nupstream.api_key = \"k\"", Some("own credentials")),
        (
            "auth.mode = \"upstream\"\nupstream.headers.Authorization = \"k\"",
            Some("own credentials"),
        ),
        ("auth.mode = \"bearer\"", Some("keys: `auth.keys.NAME`")),
        ("auth = {mode = \"jwt\", issuer = \"i\", audience = \"a\"}", Some("`auth.jwks`")),
        ("auth = {mode = \"jwt\", jwks = \"/srv/x\", audience = \"a\"}", Some("`auth.issuer`")),
        ("auth = {mode = \"jwt\", jwks = \"/srv/x\", issuer = \"i\"}", Some("`auth.audience`")),
        ("cors = {origins = [\"*\"], credentials = true}", Some("not `*`")),
        ("cors.origins = [\"chat\"]", Some("origins such as")),
        ("cors.origins = \"*\"", Some("since `auth.mode` is none")),
        ("cors.origins = \"*\"\ninsecure = true", None),
        ("cors.origins = \"*\"\nauth.mode = \"upstream\"", None),
        ("forward_headers = [\"Connection\"]", Some("the name of a header")),
        ("emit.state = \"deltas\"", Some("`initial` or `final`")),
        ("emit.max_event_bytes = -1", Some("between 0 and")),
        ("emit.tool_results = \"no\"", Some("`true` or `false`")),
        ("emit.harness = \"none\"", Some("`notice` or `show` or `hide`")),
        ("emit.harness = \"hide\"", None),
        ("agents.a.emit.harness = \"show\"", None),
        ("emit.colour = 1", Some("a key of config.toml.example")),
        ("agents.a.emit.colour = 1", Some("a key of config.toml.example")),
        ("agents.a.emit.steps = 1", Some("`true` or `false`")),
        ("upstream.messages_key = \"\"", Some("a key of the graph's state")),
        ("upstream.messages_key = \"__interrupt__\"", Some("not beginning with `__`")),
        ("upstream.messages_key = 1", Some("a string")),
        ("agents.a.messages_key = \"\"", Some("a key of the graph's state")),
        ("error_detail = \"all\"", Some("`full` or `message`")),
        ("upstream.forward_identity = \"no\"", Some("`true` or `false`")),
        ("on_message_while_interrupted = \"ask\"", Some("`ask_again` or `reject`")),
        ("multitask_strategy = \"queue\"", Some("`reject` or `enqueue` or `interrupt`")),
        ("forward_multitask_strategies = [\"reject\", \"any\"]", Some("is any; expected `reject`")),
        ("input.system_messages = \"keep\"", Some("`send` or `drop`")),
        ("limits.requests_per_second = 0", Some("between 1 and")),
        ("record.files = 0", Some("between 1 and 100000")),
        ("record.bytes = 1", Some("between 1048576 and")),
        ("record.dir = 1", Some("a string")),
        ("record.dir = \"d\"", None),
    ] {
        let mistakes = checked(&format!("upstream.url = \"http://u\"\n{file}")).err();
        let mistakes = mistakes.unwrap_or_default();
        assert_eq!(mistakes.len(), usize::from(message.is_some()), "{file}: {mistakes:?}");
        assert!(mistakes.concat().contains(message.unwrap_or_default()), "{file}: {mistakes:?}");
    }
}

#[test]
fn runs_are_recorded_only_where_a_directory_is_given() {
    let read = |text: &str| checked(&format!("upstream.url = \"http://u\"\n{text}")).unwrap();
    assert_eq!(read("record = {files = 1, bytes = 1048576}").record, None);
    let record = read("record.dir = \"d\"").record.unwrap();
    let (files, bytes) = (runs::DEFAULT_FILES, runs::DEFAULT_BYTES);
    assert_eq!(record, Recording { dir: PathBuf::from("d"), files, bytes });
    let record = read("record = {dir = \"d\", files = 2, bytes = 2097152}").record.unwrap();
    assert_eq!((record.files, record.bytes), (2, 2_097_152));
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let (raw, mistakes) = of_toml("listen = \"x");
    assert!(raw.given.is_empty());
    assert_eq!(mistakes.len(), 1);
    assert_eq!(
        mistakes,
        ["f.toml: expected TOML (invalid basic string, expected `\"`, at line 1)"]
    );
}

#[test]
fn an_upstream_must_come_from_somewhere() {
    let mistakes = Config::read(&Options::default(), None).unwrap_err();
    let message = mistakes[0].to_string();
    assert_eq!(mistakes.len(), 1);
    assert!(
        message.starts_with("--upstream: expected the URL of the LangGraph server"),
        "{message}"
    );
}

#[test]
fn a_key_is_never_printed() {
    let options = Options::default().with("upstream.api_key", "s3cret");
    let config = over(&options, "upstream.url = \"http://u\"").unwrap();
    assert!(config.upstreams[0].api_key.is_some());
    for text in [
        "listen = \"127.0.0.1:1\"\nupstream.api_key = \"s3cret",
        "upstream.api-key = \"s3cret\"",
        "api_key = \"s3cret\"",
        "upstream.url = \"http://u:s3cret@host\"",
        "upstream.url = \"http://u:s3cret@host:99999\"",
        "upstream.url = \"ftp://u:s3cret@host\"",
        "upstream.url = \"http:///?key=s3cret\"",
        "upstream.headers.x-key = \"s3cret\\n\"",
        "auth = {mode = \"bearer\", keys.a = \"s3cret\"}",
        "auth = {mode = \"bearer\", keys = \"s3cret\"}",
        "auth = {mode = \"bearer\", keys.a = \"0123456789abcdef,s3cret=0123456789abcdef\"}",
        "auth.keys.a = [\"s3cret\"]",
        "auth.key.a = \"s3cret\"",
        "auth = {mode = \"jwt\", jwks = \"http://u:s3cret@host\", issuer = \"i\", audience = \"a\"}",
        "upstream.api_key = [\"s3cret\"]",
    ] {
        let mistakes = checked(text).unwrap_err();
        assert!(!mistakes.concat().contains("s3cret"), "{mistakes:?}");
    }
    let raw = Raw::of_flags(&options, None);
    assert!(!format!("{raw:?} {config:?} {options:?}").contains("s3cret"));
}

#[test]
fn an_agent_is_shown_as_it_says_and_else_as_all_are() {
    let file = "upstream.url = \"http://u\"\nemit = {state = \"final\", steps = false}\n\
                [agents.help]\nagent = \"agent\"\n[agents.help.emit]\nsteps = true\n\
                [agents.\"a.b\".emit]\nreasoning = \"hide\"\nharness = \"show\"";
    let config = checked(file).unwrap();
    assert_eq!(config.aliases, [("help".to_owned(), "agent".to_owned())]);
    let agents = config.agents(&Metrics::default()).unwrap();
    let emit = |name: &str| agents.find(name, &Caller::default()).unwrap().emit;
    let all = EmitOptions { state: StateEvents::Final, steps: false, ..EmitOptions::default() };
    assert_eq!(emit("other"), all);
    assert_eq!(emit("help"), EmitOptions { steps: true, ..all });
    assert_eq!(emit("agent"), all, "the alias alone is shown otherwise");
    assert_eq!(emit("a.b"), EmitOptions { reasoning: false, harness: Harness::Show, ..all });
}

#[test]
fn a_graph_keeps_its_conversation_where_its_agent_says_and_else_where_its_server_does() {
    let key = |config: &Config, name: &str| {
        let agents = config.agents(&Metrics::default()).unwrap();
        let agent = agents.find(name, &Caller::default()).unwrap();
        agent.upstream.messages_key().to_string()
    };
    let config = checked("upstream.url = \"http://u\"").unwrap();
    assert_eq!(key(&config, "agent"), "messages");
    let file = "upstream = {url = \"http://u\", messages_key = \"log\"}\n\
                [agents.help]\nagent = \"graph\"\nmessages_key = \"chat_history\"\n\
                [agents.\"a.b\"]\nmessages_key = \"turns\"\n\
                [agents.plain]\nagent = \"other\"\nmessages_key = \"messages\"";
    let config = checked(file).unwrap();
    assert_eq!(config.aliases.len(), 2);
    for (name, expected) in [
        ("agent", "log"),
        ("help", "chat_history"),
        // The same graph under its own name.
        ("graph", "chat_history"),
        ("a.b", "turns"),
        ("plain", "messages"),
        ("other", "messages"),
    ] {
        assert_eq!(key(&config, name), expected, "{name}");
    }
    // The graph's own key beats the alias's.
    let file = "upstream.url = \"http://u\"\n[agents.help]\nagent = \"graph\"\n\
                messages_key = \"a\"\n[agents.graph]\nmessages_key = \"b\"";
    let config = checked(file).unwrap();
    assert_eq!((key(&config, "help").as_str(), key(&config, "graph").as_str()), ("a", "b"));
    let several = "[upstreams.one]\nurl = \"http://u\"\nmessages_key = \"log\"\n\
                   [upstreams.two]\nurl = \"http://v\"";
    let config = checked(several).unwrap();
    assert_eq!(
        (key(&config, "one:x").as_str(), key(&config, "two:x").as_str()),
        ("log", "messages")
    );
}
