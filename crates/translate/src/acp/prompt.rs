//! Prompts: ACP's content blocks as the content of a LangChain message.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource};

use super::rpc::{Code, Error};
use super::update::{self, AvailableCommandInput};
use super::{file, reference};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{self, Media, MediaKind, MediaSource, ModelInput};

/// The kinds of content that a graph's model takes, besides text and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedContent {
    /// Images.
    pub image: bool,
    /// Recordings.
    pub audio: bool,
    /// The contents of files.
    pub embedded_context: bool,
}

/// The media in a prompt that a model may not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaIn {
    /// Whether there is an image.
    pub image: bool,
    /// Whether there is a recording.
    pub audio: bool,
}

/// A slash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// The name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The hint for the input after the name.
    pub hint: Option<String>,
    /// The prompt for the graph, in which `{args}` is replaced by the input. `None` if the graph
    /// gets the line as typed.
    pub prompt: Option<String>,
}

/// A prompt in LangGraph's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The text that was typed, without media and the contents of files.
    pub text: String,
    /// The content of the message: a string if there is only text, or else blocks.
    pub content: Json,
}

/// The placeholder for the input in a command's prompt.
pub const ARGS: &str = "{args}";

impl Default for AcceptedContent {
    /// Text and the contents of files: these are text too.
    fn default() -> Self {
        Self { image: false, audio: false, embedded_context: true }
    }
}

// === impl AcceptedContent ===

impl AcceptedContent {
    /// The same, and the media that a model is known to take.
    #[must_use]
    pub fn with_model(self, model: ModelInput) -> Self {
        let ModelInput { image, audio } = model;
        Self { image: self.image || image, audio: self.audio || audio, ..self }
    }

    /// Whether all of a prompt's media are accepted.
    pub fn takes(&self, media: MediaIn) -> bool {
        (self.image || !media.image) && (self.audio || !media.audio)
    }
}

// === impl MediaIn ===

impl MediaIn {
    /// The media in the blocks of a prompt.
    pub fn of(blocks: &[ContentBlock]) -> Self {
        let has = |is_it: fn(&ContentBlock) -> bool| blocks.iter().any(is_it);
        Self {
            image: has(|block| matches!(block, ContentBlock::Image(_))),
            audio: has(|block| matches!(block, ContentBlock::Audio(_))),
        }
    }
}

// === impl SlashCommand ===

impl SlashCommand {
    /// The command as it is sent to the client.
    pub fn offered(&self) -> update::AvailableCommand {
        let Self { name, description, hint, prompt: _ } = self;
        let input = hint.clone().map(|hint| AvailableCommandInput { hint });
        update::AvailableCommand { name: name.clone(), description: description.clone(), input }
    }
}

// === impl Prompt ===

impl Prompt {
    /// The title of the prompt in a list. `None` if nothing was typed.
    pub fn headline(&self) -> Option<String> {
        langgraph::headline(&self.text)
    }

    /// Reads the blocks of a prompt. An error for an empty prompt, and for content that is not
    /// accepted.
    pub fn read(
        blocks: &[ContentBlock],
        accepts: AcceptedContent,
        commands: &[SlashCommand],
    ) -> Result<Self, Error> {
        let mut typed = Joined::default();
        let mut pieces = Pieces::default();
        let mut files = Vec::new();
        let mut first_text = FirstText::Ahead;
        for (at, block) in blocks.iter().enumerate() {
            let refused = |kind| {
                let message =
                    format!("prompt[{at}]: this agent takes no {kind}; send text or links");
                Error::new(Code::InvalidParams, message)
            };
            let not_accepted = |kind, word| {
                let message = format!(
                    "prompt[{at}]: this agent takes no {kind}, as its promptCapabilities say; if \
                     the graph's model takes them, add \"{word}\" to `prompt` under `[acp]` in the \
                     config file of threadway"
                );
                Error::new(Code::InvalidParams, message)
            };
            match block {
                ContentBlock::Text(text) => {
                    typed.push(&text.text, Piece::Words);
                    let prompt = first_text.take(&text.text).and_then(|t| expanded(t, commands));
                    pieces.text(prompt.as_deref().unwrap_or(&text.text), Piece::Words);
                }
                // ACP demands that every agent takes resource links. The graph's tools may read
                // them.
                ContentBlock::ResourceLink(link) => {
                    let mention = reference::mention(&link.name, &link.uri);
                    typed.push(&mention, Piece::Mention);
                    pieces.text(&mention, Piece::Mention);
                }
                ContentBlock::Image(_) if !accepts.image => {
                    return Err(not_accepted("images", "image"));
                }
                ContentBlock::Image(image) => {
                    pieces.media(MediaKind::Image, &image.data, &image.mime_type, None);
                }
                ContentBlock::Audio(_) if !accepts.audio => {
                    return Err(not_accepted("audio", "audio"));
                }
                ContentBlock::Audio(audio) => {
                    pieces.media(MediaKind::Audio, &audio.data, &audio.mime_type, None);
                }
                ContentBlock::Resource(_) if !accepts.embedded_context => {
                    return Err(not_accepted("embedded resources", "embedded_context"));
                }
                ContentBlock::Resource(resource) => match &resource.resource {
                    EmbeddedResourceResource::TextResourceContents(file) => {
                        let name = reference::name_of(&file.uri);
                        let mention = reference::mention(&name, &file.uri);
                        typed.push(&mention, Piece::Mention);
                        pieces.text(&mention, Piece::Mention);
                        files.push(file::block(&file.uri, &file.text));
                    }
                    EmbeddedResourceResource::BlobResourceContents(file) => {
                        let mime = file.mime_type.as_deref();
                        let mime = mime.unwrap_or_else(|| MediaKind::File.default_mime_type());
                        let is_image = mime.starts_with("image/");
                        let kind = if is_image { MediaKind::Image } else { MediaKind::File };
                        let name = reference::name_of(&file.uri);
                        pieces.media(kind, &file.blob, mime, Some(&name));
                    }
                    _ => return Err(refused("resources of this kind")),
                },
                _ => return Err(refused("content of this kind")),
            }
        }
        for file in &files {
            pieces.file(file);
        }
        if pieces.is_empty() {
            let message = "`prompt` is empty; send at least one content block";
            return Err(Error::new(Code::InvalidParams, message));
        }
        Ok(Self { text: typed.text, content: pieces.finish() })
    }

    /// The message that is sent to the graph.
    pub fn message(&self, id: &str) -> Json {
        ObjectWriter::new()
            .string("type", "human")
            .string("id", id)
            .raw("content", self.content.get())
            .finish()
    }
}

/// The prompt of the command that a text block is. `None` if it is none.
fn expanded(typed: &str, commands: &[SlashCommand]) -> Option<String> {
    let line = typed.trim().strip_prefix('/')?;
    let (name, args) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let prompt = commands.iter().find(|command| command.name == name)?.prompt.as_ref()?;
    Some(prompt.replace(ARGS, args.trim()))
}

/// Whether the block with a command was read. Only the first text that is not blank may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstText {
    Ahead,
    Read,
}

impl FirstText {
    /// The text, if it is the first.
    fn take<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if text.trim().is_empty() {
            return None;
        }
        (std::mem::replace(self, Self::Read) == Self::Ahead).then_some(text)
    }
}

/// What a part of a text was in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// A text block.
    Words,
    /// A link or a file, mentioned in place.
    Mention,
}

/// Blocks as one text, in which none runs into the next.
#[derive(Debug, Default)]
struct Joined {
    text: String,
    last: Option<Piece>,
}

impl Joined {
    fn push(&mut self, text: &str, piece: Piece) {
        if let (Some(end), Some(start)) = (self.text.chars().next_back(), text.chars().next())
            && !end.is_whitespace()
            && !start.is_whitespace()
        {
            self.text.push_str(match (self.last, piece) {
                (Some(Piece::Words), Piece::Words) => PARAGRAPH,
                (Some(Piece::Mention), Piece::Words) if CLOSING.contains(start) => "",
                (Some(Piece::Words), Piece::Mention) if OPENING.contains(end) => "",
                _ => " ",
            });
        }
        if !text.is_empty() {
            self.text.push_str(text);
            self.last = Some(piece);
        }
    }
}

/// The break between two text blocks without white space at their border.
const PARAGRAPH: &str = "\n\n";

/// The characters that follow a mention without a space, and those that precede one.
const CLOSING: &str = ".,;:!?)]}…»”’'、。，";
const OPENING: &str = "([{«“‘'\"";

/// The blocks of a message, with adjacent texts joined.
#[derive(Default)]
struct Pieces {
    text: Joined,
    blocks: Vec<Json>,
    /// Whether there is more than text that was typed.
    has_more: bool,
}

impl Pieces {
    fn text(&mut self, text: &str, piece: Piece) {
        self.text.push(text, piece);
    }

    fn media(&mut self, kind: MediaKind, base64: &str, mime_type: &str, name: Option<&str>) {
        self.flush();
        self.has_more = true;
        let source = MediaSource::Data(Text::new(base64));
        let mime_type = Some(Text::new(mime_type));
        let media = Media { kind, source, mime_type, filename: name.map(Text::new) };
        self.blocks.push(media.to_langchain());
    }

    /// Adds a file's text as a block of its own.
    fn file(&mut self, block: &str) {
        self.flush();
        self.has_more = true;
        self.text.push(block, Piece::Words);
        self.flush();
    }

    fn flush(&mut self) {
        let Joined { text, last: _ } = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.blocks
                .push(ObjectWriter::new().string("type", "text").string("text", &text).finish());
        }
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.text.text.trim().is_empty()
    }

    fn finish(mut self) -> Json {
        if !self.has_more {
            return Json::from(Text::new(&self.text.text));
        }
        self.flush();
        json::array(self.blocks.iter().map(|block| block.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AcceptedContent =
        AcceptedContent { image: true, audio: true, embedded_context: true };

    fn read(blocks: &str, accepts: AcceptedContent) -> Result<String, Error> {
        let blocks: Vec<ContentBlock> = serde_json::from_str(blocks).unwrap();
        let review = SlashCommand {
            name: "review".to_owned(),
            description: String::new(),
            hint: None,
            prompt: Some("Review {args} well.".to_owned()),
        };
        let plain = SlashCommand { name: "plain".to_owned(), prompt: None, ..review.clone() };
        let prompt = Prompt::read(&blocks, accepts, &[review, plain])?;
        Ok(prompt.content.get().to_owned())
    }

    #[test]
    fn text_and_links_are_one_string() {
        let blocks = r#"[{"type":"text","text":"Explain "},
            {"type":"resource_link","name":"a.rs","uri":"file:///w/a.rs"},{"type":"text","text":", please"}]"#;
        let read = read(blocks, AcceptedContent::default());
        assert_eq!(read.unwrap(), r#""Explain [a.rs](file:///w/a.rs), please""#);
    }

    #[test]
    fn a_file_is_mentioned_in_place_and_follows_as_a_block_of_its_own() {
        let blocks = r#"[{"type":"resource","resource":{"uri":"file:///w/a.rs","text":"fn a() {}"}},
            {"type":"text","text":" is odd"}]"#;
        assert_eq!(
            read(blocks, AcceptedContent::default()).unwrap(),
            concat!(
                r#"[{"type":"text","text":"[a.rs](file:///w/a.rs) is odd"},"#,
                r#"{"type":"text","text":"\n\n<file uri=\"file:///w/a.rs\">\nfn a() {}\n</file>"}]"#
            )
        );
    }

    #[test]
    fn media_become_blocks() {
        let blocks = r#"[{"type":"text","text":"See "},{"type":"image","data":"AA==","mimeType":"image/png"},
            {"type":"audio","data":"BB==","mimeType":"audio/wav"},
            {"type":"resource","resource":{"uri":"file:///w/a.pdf","blob":"CC==","mimeType":"application/pdf"}}]"#;
        assert_eq!(
            read(blocks, ALL).unwrap(),
            concat!(
                r#"[{"type":"text","text":"See "},{"type":"image","base64":"AA==","mime_type":"image/png"},"#,
                r#"{"type":"audio","base64":"BB==","mime_type":"audio/wav"},"#,
                r#"{"type":"file","base64":"CC==","mime_type":"application/pdf","filename":"a.pdf"}]"#
            )
        );
    }

    #[test]
    fn content_that_was_not_declared_is_refused() {
        for (block, kind) in [
            (r#"{"type":"image","data":"","mimeType":"image/png"}"#, "images"),
            (r#"{"type":"audio","data":"","mimeType":"audio/wav"}"#, "audio"),
        ] {
            let error = read(&format!("[{block}]"), AcceptedContent::default()).unwrap_err();
            assert_eq!(error.code, Code::InvalidParams);
            assert!(error.message.contains(kind), "{error}");
        }
        assert!(read("[]", ALL).is_err());
        assert!(read(r#"[{"type":"text","text":" "}]"#, ALL).is_err());
    }

    #[test]
    fn a_command_is_replaced_by_its_prompt() {
        for (typed, asked) in [
            ("/review  src/a.rs ", "Review src/a.rs well."),
            ("/review", "Review  well."),
            ("/plain x", "/plain x"),
            ("/other x", "/other x"),
            ("a /review", "a /review"),
        ] {
            let block = ObjectWriter::new().string("type", "text").string("text", typed).finish();
            let read = read(&format!("[{}]", block.get()), ALL).unwrap();
            assert_eq!(read, format!("\"{asked}\""));
        }
        let blocks = r#"[{"type":"text","text":"/review it"},{"type":"image","data":"AA","mimeType":"image/png"}]"#;
        assert_eq!(
            read(blocks, ALL).unwrap(),
            r#"[{"type":"text","text":"Review it well."},{"type":"image","base64":"AA","mime_type":"image/png"}]"#
        );
    }

    const FILE: &str =
        r#"{"type":"resource","resource":{"uri":"file:///w/a%20b.rs","text":"fn a() {}"}}"#;
    const FILE_BLOCK: &str =
        r#"{"type":"text","text":"\n\n<file uri=\"file:///w/a%20b.rs\">\nfn a() {}\n</file>"}"#;
    const IMAGE: &str = r#"{"type":"image","data":"AA","mimeType":"image/png"}"#;
    const IMAGE_BLOCK: &str = r#"{"type":"image","base64":"AA","mime_type":"image/png"}"#;

    fn text_block(text: &str) -> String {
        ObjectWriter::new().string("type", "text").string("text", text).finish().get().to_owned()
    }

    #[test]
    fn a_command_is_the_first_text_block_whatever_stands_beside_it() {
        let word = |text: &str| text_block(text);
        let mention = "[a b.rs](file:///w/a%20b.rs)";
        for (blocks, expected) in [
            (
                vec![word("/review"), word("<context>open: b.rs</context>")],
                word("Review  well.\n\n<context>open: b.rs</context>"),
            ),
            (
                vec![FILE.to_owned(), word("/review it")],
                [word(&format!("{mention} Review it well.")), FILE_BLOCK.to_owned()].join(","),
            ),
            (
                vec![word("/review it"), FILE.to_owned()],
                [word(&format!("Review it well. {mention}")), FILE_BLOCK.to_owned()].join(","),
            ),
            (
                vec![IMAGE.to_owned(), word("/review it")],
                [IMAGE_BLOCK.to_owned(), word("Review it well.")].join(","),
            ),
            (vec![word(" \n"), word("/review it"), word("/review that")], {
                word(" \nReview it well.\n\n/review that")
            }),
            (vec![word("see"), word("/review it")], word("see\n\n/review it")),
        ] {
            let read = read(&format!("[{}]", blocks.join(",")), ALL).unwrap();
            let read = if let Some(blocks) = json::items(&json::raw(read.clone())) {
                blocks.iter().map(|block| block.get()).collect::<Vec<_>>().join(",")
            } else {
                let text: String = serde_json::from_str(&read).unwrap();
                word(&text)
            };
            assert_eq!(read, expected, "{blocks:?}");
        }
    }

    #[test]
    fn a_mention_stands_apart_from_words_but_not_from_punctuation() {
        let link = r#"{"type":"resource_link","name":"a]b","uri":"file:///w/ab"}"#;
        let cases = [
            ("", "explain", "[a\\]b](file:///w/ab) explain"),
            ("see", "", "see [a\\]b](file:///w/ab)"),
            ("see ", "", "see [a\\]b](file:///w/ab)"),
            ("(", ")", "([a\\]b](file:///w/ab))"),
            ("", "'s end", "[a\\]b](file:///w/ab)'s end"),
        ];
        for (before, after, expected) in cases {
            let blocks = [text_block(before), link.to_owned(), text_block(after)].join(",");
            let read = read(&format!("[{blocks}]"), ALL).unwrap();
            let read: String = serde_json::from_str(&read).unwrap();
            assert_eq!(read, expected);
        }
        let two = read(&format!("[{link},{link}]"), ALL).unwrap();
        assert!(two.contains(") ["), "{two}");
    }

    proptest::proptest! {
        #[test]
        fn two_text_blocks_never_run_together(texts in proptest::collection::vec("[ab /\n.,(]{0,4}", 1..5)) {
            let blocks: Vec<_> = texts.iter().map(|text| text_block(text)).collect();
            let Ok(content) = read(&format!("[{}]", blocks.join(",")), ALL) else {
                return Ok(());
            };
            let content: String = serde_json::from_str(&content).unwrap();
            let mut rest = content.as_str();
            let mut end = None::<char>;
            for text in texts.iter().filter(|text| !text.is_empty()) {
                let is_border = |c: char| !c.is_whitespace();
                let needs_gap = end.is_some_and(is_border) && text.starts_with(is_border);
                if needs_gap {
                    rest = rest.strip_prefix("\n\n").unwrap();
                }
                rest = rest.strip_prefix(text.as_str()).unwrap();
                end = text.chars().next_back();
            }
            proptest::prop_assert_eq!(rest, "");
        }
    }
}
