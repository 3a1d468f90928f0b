//! Encodes AG-UI events as `application/vnd.ag-ui.event+proto`.
//!
//! Each line of stdin is an event in JSON. The frames go to stdout, where
//! `integration/client/proto.test.mjs` decodes them with the official decoder.
//!
//! `grep '^data: ' tests/golden/py-0.16.7/agent-combo.sse | cut -c7- | cargo run --example
//! proto-frames`

use std::io::{self, BufRead, Write};

use threadway_translate::agui::ProtoEncoder;

fn main() -> io::Result<()> {
    let (mut encoder, mut out) = (ProtoEncoder::default(), Vec::new());
    for line in io::stdin().lock().lines() {
        encoder.frame(line?.as_bytes(), &mut out);
    }
    io::stdout().lock().write_all(&out)
}
