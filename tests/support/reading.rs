//! The output of a decoder for a stream, and the output that the SSE standard prescribes.

use threadway_translate::sse::{DecodeError, Decoder, Ending, Frame};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) event: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<u64>,
}

/// All frames and errors of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) blocks: Vec<Block>,
    pub(crate) comments: u64,
    pub(crate) end: Result<Ending, DecodeError>,
}

// === impl Block ===

impl From<Frame<'_>> for Block {
    fn from(Frame { event, data, id, retry }: Frame<'_>) -> Self {
        Self {
            event: event.map(Into::into),
            data: data.map(Into::into),
            id: id.map(Into::into),
            retry,
        }
    }
}

/// Decodes `stream` in chunks of the given sizes, repeated; no sizes means one chunk.
pub(crate) fn read(stream: &[u8], sizes: &[usize], limit: usize) -> Reading {
    let mut decoder = Decoder::with_limit(limit);
    let mut blocks = Vec::new();
    let mut rest = stream;
    let mut sizes = sizes.iter().copied().cycle();
    while !rest.is_empty() {
        let (chunk, later) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        rest = later;
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => blocks.push(frame.into()),
                Ok(None) => break,
                Err(error) => return Reading { blocks, comments: 0, end: Err(error) },
            }
        }
    }
    Reading { blocks, comments: decoder.comments(), end: Ok(decoder.finish()) }
}

/// The standard's algorithm, taken literally: the whole stream as text, then line by line.
pub(crate) fn read_literally(stream: &[u8]) -> Reading {
    let text = String::from_utf8_lossy(stream).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let (lines, unfinished) = text.rsplit_once('\n').unwrap_or(("", text));
    let lines = if text.contains('\n') { lines.split('\n').collect() } else { Vec::new() };

    let mut blocks = Vec::new();
    let mut comments = 0;
    let mut block = Block::default();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "" if line.is_empty() => blocks.push(std::mem::take(&mut block)),
            "" => comments += 1,
            "event" => block.event = Some(value),
            "data" => {
                block.data = Some(match block.data {
                    Some(data) => data + "\n" + &value,
                    None => value,
                });
            }
            "id" if !value.contains('\0') => block.id = Some(value),
            "retry" if value.chars().all(|c| c.is_ascii_digit()) => {
                block.retry = value.parse().ok().or(block.retry);
            }
            _ => {}
        }
    }
    blocks.retain(|block| *block != Block::default());
    let is_cut = block != Block::default() || !unfinished.is_empty();
    let end = if is_cut { Ending::Partial { bytes: 1 } } else { Ending::Clean };
    Reading { blocks, comments, end: Ok(end) }
}

/// The data that SSE can carry: every line end arrives as a line feed.
pub(crate) fn carried(data: &str) -> String {
    data.replace("\r\n", "\n").replace('\r', "\n")
}
