//! The system prompt of a client, in the form that a graph gets it.

use agent_client_protocol_schema::v1::{ContentBlock, SystemPrompt, SystemPromptMode};

use super::rpc::{Code, Error};
use crate::json::{Json, ObjectWriter};

/// The longest system prompt, in bytes. It is kept with its session, and sent with each run.
const MAX_BYTES: usize = 256 * 1024;

/// The prompt as a graph reads it: `mode` is `append` or `override`, and `content` its text. Blocks are
/// separated by an empty line.
///
/// Fails if the prompt cannot be applied as the client wants it. The error does not quote the prompt.
pub fn for_graph(prompt: &SystemPrompt) -> Result<Json, Error> {
    let refused = |message: String| Err(Error::new(Code::InvalidParams, message));
    let mode = if prompt.mode == SystemPromptMode::Append {
        "append"
    } else if prompt.mode == SystemPromptMode::Override {
        "override"
    } else {
        return refused("`systemPrompt.mode` is neither `append` nor `override`".to_owned());
    };
    let mut texts = Vec::new();
    for block in &prompt.content {
        let ContentBlock::Text(text) = block else {
            let message = "`systemPrompt.content` has a block that is no text; send text blocks";
            return refused(message.to_owned());
        };
        texts.push(&*text.text);
    }
    let content = texts.join("\n\n");
    if content.trim().is_empty() {
        return refused("`systemPrompt.content` has no text; leave `systemPrompt` out".to_owned());
    }
    if content.len() > MAX_BYTES {
        return refused(format!(
            "`systemPrompt` is longer than {MAX_BYTES} bytes; send a shorter one"
        ));
    }
    Ok(ObjectWriter::new().string("mode", mode).string("content", &content).finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(prompt: &Value) -> Result<String, String> {
        let prompt = serde_json::from_value(prompt.clone()).unwrap();
        for_graph(&prompt).map(|json| json.get().to_owned()).map_err(|error| error.message)
    }

    #[test]
    fn a_prompt_is_its_mode_and_its_text() {
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            read(&json!({"mode": "append", "content": [text("a"), text("b")]})).unwrap(),
            r#"{"mode":"append","content":"a\n\nb"}"#
        );
        assert!(read(&json!({"mode": "override", "content": [text("a")]})).is_ok());
        let link = json!({"type": "resource_link", "name": "n", "uri": "file:///s3cr3t"});
        let long = text(&"s3cr3t".repeat(MAX_BYTES / 6 + 1));
        for (prompt, why) in [
            (json!({"mode": "s3cr3t", "content": [text("a")]}), "neither"),
            (json!({"mode": "append", "content": []}), "no text"),
            (json!({"mode": "append", "content": [text(" ")]}), "no text"),
            (json!({"mode": "append", "content": [text("a"), link]}), "no text; send text"),
            (json!({"mode": "append", "content": [long]}), "longer than"),
        ] {
            let error = read(&prompt).unwrap_err();
            assert!(error.contains(why) && !error.contains("s3cr3t"), "{error}");
        }
    }
}
