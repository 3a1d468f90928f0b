//! An agent made with the Rust SDK. From memory it sends the updates that `threadway acp` sends for
//! a run of `bench/stdio.rs`: the same texts, ids and sizes.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, MessageId,
    NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse, SessionId,
    SessionNotification, SessionUpdate, StopReason, TextContent,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, Lines, Result, Stdio};
use futures::channel::mpsc;
use futures::io::BufReader;
use futures::{AsyncBufReadExt, SinkExt, StreamExt};
use serde::Deserialize;

/// The message's id in the recorded run.
const MESSAGE_ID: &str = "lc_run--01a200b7-63ff-75b1-ba96-7effe4fc83bf";

/// How many lines may wait for this program's own writer.
const WAITING_LINES: usize = 1024;

/// The members of the prompt that are read; the prompt is the script of the run.
#[derive(Deserialize)]
struct Script {
    tokens: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        // As in the SDK's examples.
        Some("stdio") => serve(Stdio::new()).await,
        // The same lines, joined and written by a thread.
        Some("lines") => serve(lines()).await,
        _ => Err(Error::invalid_params()),
    }
}

async fn serve(transport: impl ConnectTo<Agent> + 'static) -> Result<()> {
    let sessions = AtomicU64::new(0);
    Agent
        .v1()
        .name("threadway-bench-acp-sdk")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _cx| {
                responder.respond(InitializeResponse::new(request.protocol_version))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_request: NewSessionRequest, responder, _cx| {
                // As long as a thread's id.
                let count = sessions.fetch_add(1, Ordering::Relaxed);
                let id = format!("00000000-0000-0000-0000-{count:012}");
                responder.respond(NewSessionResponse::new(id))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx: ConnectionTo<Client>| {
                let texts = texts(&request)?;
                let connection = cx.clone();
                cx.spawn(async move {
                    say(&connection, &request.session_id, texts).await?;
                    responder.respond(PromptResponse::new(StopReason::EndTurn))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(transport)
        .await
}

/// All texts in advance: the tokens of `bench/load/text.rs`.
#[expect(clippy::disallowed_methods, reason = "`Instant` has no value to hand to another process")]
fn texts(request: &PromptRequest) -> Result<Vec<String>> {
    let Some(ContentBlock::Text(script)) = request.prompt.first() else {
        return Err(Error::invalid_params());
    };
    let script: Script = serde_json::from_str(&script.text).map_err(Error::into_internal_error)?;
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut texts: Vec<_> = (0..script.tokens)
        .map(|place| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let token = format!("{place}@{} ", since.as_nanos());
            for byte in token.bytes() {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            token
        })
        .collect();
    texts.push(format!("{}#{sum} ", script.tokens));
    Ok(texts)
}

async fn say(
    connection: &ConnectionTo<Client>,
    session: &SessionId,
    texts: Vec<String>,
) -> Result<()> {
    let message_id = MessageId::new(MESSAGE_ID);
    for text in texts {
        let chunk = ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
            .message_id(message_id.clone());
        let update = SessionUpdate::AgentMessageChunk(chunk);
        connection.send_notification(SessionNotification::new(session.clone(), update))?;
        // Yields as an agent does that waits for the next token, so that the connection can work.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Lines over stdin and stdout, several in one write.
fn lines() -> impl ConnectTo<Agent> + 'static {
    let (sender, mut receiver) = mpsc::channel::<String>(WAITING_LINES);
    thread::spawn(move || -> io::Result<()> {
        let mut stdout = BufWriter::new(io::stdout().lock());
        futures::executor::block_on(async {
            loop {
                let line = match receiver.try_recv() {
                    Ok(line) => line,
                    Err(_) => {
                        stdout.flush()?;
                        let Some(line) = receiver.next().await else { return Ok(()) };
                        line
                    }
                };
                stdout.write_all(line.as_bytes())?;
                stdout.write_all(b"\n")?;
            }
        })
    });
    let sink = sender.sink_map_err(io::Error::other);
    Lines::new(sink, BufReader::new(blocking::Unblock::new(io::stdin())).lines())
}
