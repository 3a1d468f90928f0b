//! Which media a graph's model takes, by the name of the model.
//!
//! LangGraph's API does not describe models. But many graphs have their model's name in their
//! configuration: as the default of a field, or as the value that an assistant sets. The names are
//! those of LangChain's `init_chat_model`: `openai:gpt-4o`, `anthropic/claude-sonnet-4-5`, or without
//! a provider.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::config::ui_default;
use crate::json::{self, Members};

/// The keys under which graphs have the name of their model, the most frequent first.
pub(crate) const MODEL_KEYS: [&str; 5] = ["model", "model_name", "model_id", "llm", "chat_model"];

/// The longest name that is looked up, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The media that a model takes besides text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelInput {
    /// Images.
    pub image: bool,
    /// Recordings.
    pub audio: bool,
}

/// Models whose names begin alike.
struct Family {
    /// The first words of the names.
    name: &'static str,
    /// Names with one of these words belong to other models.
    except: &'static [&'static str],
    takes: ModelInput,
}

const IMAGES: ModelInput = ModelInput { image: true, audio: false };
const IMAGES_AND_AUDIO: ModelInput = ModelInput { image: true, audio: true };

/// Words of models of OpenAI that are made for something else than a conversation, or do not take
/// images.
const NOT_GPT: &[&str] = &["audio", "image", "realtime", "search", "spark", "transcribe", "tts"];

/// The same for Google's.
const NOT_GEMINI: &[&str] = &["audio", "computer", "embedding", "image", "live", "tts"];

/// The models that are known to take images or audio. Their LangChain packages accept LangChain's
/// own blocks for media, which is the form that a prompt has. The source is the model profiles in
/// `langchain-anthropic` 1.7, `langchain-openai` 1.7 and `langchain-google-genai` 4.4, and for older
/// models the providers' documentation.
const FAMILIES: &[Family] = &[
    Family::of("claude-3", &[], IMAGES),
    Family::of("claude-fable", &[], IMAGES),
    Family::of("claude-haiku", &[], IMAGES),
    Family::of("claude-opus", &[], IMAGES),
    Family::of("claude-sonnet", &[], IMAGES),
    Family::of("gpt-4o", NOT_GPT, IMAGES),
    Family::of("gpt-4.1", NOT_GPT, IMAGES),
    Family::of("gpt-5", NOT_GPT, IMAGES),
    Family::of("gpt-6", NOT_GPT, IMAGES),
    Family::of("o1", &["mini", "preview"], IMAGES),
    Family::of("o3", &["mini", "deep"], IMAGES),
    Family::of("o4-mini", &["deep"], IMAGES),
    Family::of("gemini-1.5", NOT_GEMINI, IMAGES_AND_AUDIO),
    Family::of("gemini-2", NOT_GEMINI, IMAGES_AND_AUDIO),
    Family::of("gemini-3", NOT_GEMINI, IMAGES_AND_AUDIO),
    Family::of("gemini-4", NOT_GEMINI, IMAGES_AND_AUDIO),
    Family::of("gemini-flash", NOT_GEMINI, IMAGES_AND_AUDIO),
    Family::of("gemini-pro-latest", NOT_GEMINI, IMAGES_AND_AUDIO),
];

/// The words that may precede a model's name, each with `:` or `/` after it. A model of another
/// provider may have a similar name, and take less.
const PROVIDERS: [&str; 16] = [
    "anthropic",
    "anthropic_bedrock",
    "azure_ai",
    "azure_openai",
    "bedrock",
    "bedrock_converse",
    "google",
    "google_anthropic_vertex",
    "google_genai",
    "google_vertexai",
    "models",
    "openai",
    "openrouter",
    "publishers",
    "vertexai",
    "vertex_ai",
];

// === impl Family ===

impl Family {
    const fn of(name: &'static str, except: &'static [&'static str], takes: ModelInput) -> Self {
        Self { name, except, takes }
    }

    fn has(&self, model: &str) -> bool {
        let Some(rest) = model.strip_prefix(self.name) else { return false };
        let is_whole_word = rest.is_empty() || rest.starts_with(['-', '.', '@', ':']);
        let mut words = rest.split(['-', '.', '@', ':', '_']);
        is_whole_word && !words.any(|word| self.except.contains(&word))
    }
}

// === impl ModelInput ===

impl ModelInput {
    /// What the model of this name takes. Nothing if the name is unknown.
    pub fn of_model(name: &str) -> Self {
        let known = || {
            let model = without_provider(name)?;
            Some(FAMILIES.iter().find(|family| family.has(model))?.takes)
        };
        known().unwrap_or_default()
    }

    /// What the model of an assistant takes. Reads the answers of `GET /assistants/{id}/schemas` and
    /// `GET /assistants/{id}`. The first of `MODEL_KEYS` counts that the assistant sets or that has a
    /// default in the schemas; a graph may have a second model under another of them. Nothing if
    /// none names a known model.
    pub fn of_assistant(schemas: &str, assistant: &str) -> Self {
        let schemas: Members<'_> = serde_json::from_str(schemas).unwrap_or_default();
        let assistant: Members<'_> = serde_json::from_str(assistant).unwrap_or_default();
        let context = assistant.get("context").and_then(json::members).unwrap_or_default();
        let config = assistant.get("config").and_then(json::members).unwrap_or_default();
        let config = config.get("configurable").and_then(json::members).unwrap_or_default();
        let fields = ["context_schema", "config_schema"].map(|name| {
            let root = schemas.get(name).and_then(json::members).unwrap_or_default();
            root.get("properties").and_then(json::members).unwrap_or_default()
        });
        let set = |key| [&context, &config].into_iter().find_map(|values| name_in(values, key));
        let default = |key: &str| {
            fields.iter().find_map(|fields| {
                let field = json::members(fields.get(key)?)?;
                let default = field.get("default").and_then(name_of);
                default.or_else(|| name_of(ui_default(&field)?))
            })
        };
        let name = MODEL_KEYS.iter().find_map(|key| set(key).or_else(|| default(key)));
        name.map_or_else(Self::default, |name| Self::of_model(&name))
    }

    /// What the model takes that a run's `configurable` names. `None` if it names none.
    pub fn of_configurable(configurable: &RawValue) -> Option<Self> {
        let values = json::members(configurable)?;
        let name = MODEL_KEYS.iter().find_map(|key| name_in(&values, key))?;
        Some(Self::of_model(&name))
    }
}

fn name_in<'a>(values: &Members<'a>, key: &str) -> Option<Cow<'a, str>> {
    name_of(values.get(key)?)
}

fn name_of(value: &RawValue) -> Option<Cow<'_, str>> {
    json::string(value).filter(|name| !name.is_empty())
}

/// A model's name without its providers. `None` if one of them is unknown, or the name is too long.
fn without_provider(name: &str) -> Option<&str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    // What follows a colon is the version in names of Bedrock: `anthropic.claude-..-v1:0`.
    let model = match name.split_once(':') {
        Some((provider, model)) if is_provider(provider) => model,
        _ => name,
    };
    let (before, model) = model.rsplit_once('/').unwrap_or(("", model));
    if !before.split('/').all(|word| word.is_empty() || is_provider(word)) {
        return None;
    }
    // Bedrock has the provider, and before it a region: `us.anthropic.claude-..`.
    let of_bedrock = model.split_once("anthropic.");
    let of_bedrock = of_bedrock.filter(|(region, _)| region.is_empty() || region.ends_with('.'));
    Some(of_bedrock.map_or(model, |(_, model)| model))
}

fn is_provider(word: &str) -> bool {
    let word = word.replace('-', "_");
    PROVIDERS.contains(&&*word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ModelInput = ModelInput { image: false, audio: false };

    #[test]
    fn known_models_take_images_and_some_take_audio() {
        for (name, takes) in [
            ("openai:gpt-4o", IMAGES),
            ("openai/gpt-4.1-mini", IMAGES),
            ("gpt-5", IMAGES),
            ("gpt-5.1-codex", IMAGES),
            ("azure_openai:gpt-4o-2024-11-20", IMAGES),
            ("o1", IMAGES),
            ("openai:o4-mini", IMAGES),
            ("anthropic:claude-3-5-sonnet-latest", IMAGES),
            ("anthropic/claude-sonnet-4-5-20250929", IMAGES),
            ("openrouter:anthropic/claude-3.5-haiku", IMAGES),
            ("claude-opus-4-1", IMAGES),
            ("google_anthropic_vertex:claude-sonnet-4@20250514", IMAGES),
            ("bedrock_converse:us.anthropic.claude-3-5-sonnet-20241022-v2:0", IMAGES),
            ("anthropic.claude-3-haiku-20240307-v1:0", IMAGES),
            ("google_genai:gemini-2.5-pro", IMAGES_AND_AUDIO),
            ("google-vertexai:gemini-2.0-flash-lite", IMAGES_AND_AUDIO),
            ("models/gemini-flash-latest", IMAGES_AND_AUDIO),
        ] {
            assert_eq!(ModelInput::of_model(name), takes, "{name}");
        }
    }

    #[test]
    fn of_an_unknown_model_nothing_is_known() {
        let long = format!("openai:gpt-4o-{}", "x".repeat(MAX_NAME_BYTES));
        for name in [
            "",
            ":",
            "/",
            "openai",
            "anthropic",
            "fast",
            "gpt-4",
            "gpt-3.5-turbo",
            "gpt-4-turbo-preview",
            "gpt-4ox",
            "openai:gpt-4o-audio-preview",
            "openai:gpt-5.3-codex-spark",
            "o1-mini",
            "o1-preview",
            "openai:o3-mini",
            "o11",
            "claude-2.1",
            "claude-instant-1.2",
            "gemini-pro",
            "gemini-1.0-pro",
            "gemini-2.5-flash-preview-tts",
            "gemini-embedding-001",
            "ollama:llama3.2-vision",
            // Somebody else's models of similar names.
            "ollama:gpt-4o",
            "someone/claude-sonnet-4-distill-7b",
            "groq:openai/gpt-oss-120b",
            "notanthropic.claude-3",
            "mistralai:pixtral-12b",
            "deepseek:deepseek-chat",
            &long,
        ] {
            assert_eq!(ModelInput::of_model(name), NONE, "{name}");
        }
    }

    #[test]
    fn an_assistants_own_model_precedes_the_default_of_the_schema() {
        let schemas = r#"{"config_schema":{"properties":{"llm":{"default":"gpt-4o"}}},
            "context_schema":{"properties":{
                "model":{"default":"google_genai:gemini-2.5-pro","type":"string"},
                "temperature":{"default":0.5}}}}"#;
        let takes = |schemas: &str, assistant: &str| ModelInput::of_assistant(schemas, assistant);
        assert_eq!(takes(schemas, "{}"), IMAGES_AND_AUDIO);
        let of = |member: &str, model: &str| format!(r#"{{"{member}":{model}}}"#);
        for (assistant, expected) in [
            (of("context", r#"{"model":"claude-opus-4-1"}"#), IMAGES),
            (of("config", r#"{"configurable":{"model":"ollama:llama3"}}"#), NONE),
            (of("config", r#"{"configurable":{"model":7}}"#), IMAGES_AND_AUDIO),
            (of("config", r#"{"configurable":{"llm":"ollama:llama3"}}"#), IMAGES_AND_AUDIO),
            (of("config", "null"), IMAGES_AND_AUDIO),
        ] {
            assert_eq!(takes(schemas, &assistant), expected, "{assistant}");
        }
        let own = of("context", r#"{"chat_model":"gpt-4o"}"#);
        assert_eq!(takes("", &own), IMAGES);
        let ui = r#"{"config_schema":{"properties":{"model_name":{"default":null,
            "metadata":{"x_oap_ui_config":{"type":"select","default":"openai:gpt-4o"}}}}}}"#;
        assert_eq!(takes(ui, "{}"), IMAGES);
        for none in ["", "<html>", "[]", "null", "{}", r#"{"context_schema":{"properties":7}}"#] {
            assert_eq!(takes(none, none), NONE, "{none}");
        }
    }

    #[test]
    fn a_run_may_name_another_model() {
        let of = |text: &str| ModelInput::of_configurable(&json::raw(text.to_owned()));
        assert_eq!(of(r#"{"model":"gpt-4o"}"#), Some(IMAGES));
        assert_eq!(of(r#"{"model":"fast"}"#), Some(NONE));
        assert_eq!(of(r#"{"mode":"fast"}"#), None);
        assert_eq!(of("7"), None);
    }
}
