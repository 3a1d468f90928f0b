//! ACP over stdin and stdout, one message per line.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::sessions::{LineHandler, Outbox, Work};
use threadway_translate::buffer;

/// The longest line that is read. The official SDK has the same limit; it is enough for some images
/// in base64.
pub(crate) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long requests from before the end of stdin may take to be answered.
pub(crate) const END_GRACE: Duration = Duration::from_millis(500);

/// How long closing may take after that, for runs that must be stopped.
pub const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads lines of bounded length.
pub(crate) struct Lines<R> {
    reader: R,
    /// Bytes that were read. The current line begins at `start`.
    buffer: Vec<u8>,
    start: usize,
    /// There is no line end before this position.
    searched: usize,
    is_passing_over: bool,
}

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The place of the line in the buffer.
    Whole(std::ops::Range<usize>),
    /// A line that exceeds [`MAX_LINE_BYTES`].
    TooLong,
}

/// Serves one client until it closes stdin or stdout, or `shutdown` is cancelled.
pub async fn serve(
    connection: &impl LineHandler,
    outbox: &Outbox,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    let mut writing = std::pin::pin!(write(outbox, writer));
    let mut works = FuturesUnordered::<Work>::new();
    let mut lines = Lines::new(reader);
    let ended = loop {
        tokio::select! {
            biased;
            // A client that closed its end of stdout is gone.
            ended = &mut writing => return ended,
            () = shutdown.cancelled() => break Ok(()),
            Some(()) = works.next() => {}
            line = next_line(outbox, &mut lines) => match line {
                Ok(Some(Line::Whole(at))) => {
                    let line = lines.get(at);
                    // A blank line is ignored without an error.
                    if !line.trim_ascii().is_empty() {
                        works.extend(connection.take(line));
                    }
                }
                Ok(Some(Line::TooLong)) => connection.refuse_line(MAX_LINE_BYTES),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
        }
    };
    connection.hang_up();
    let rest = async {
        while works.next().await.is_some() {}
        outbox.wait_until_written().await;
    };
    // Answers after that time have no reader.
    let _ = tokio::time::timeout(END_GRACE, async {
        tokio::select! {
            () = rest => {}
            _ = writing => {}
        }
    })
    .await;
    ended
}

/// The next line. Waits first until the client has read enough of its responses.
async fn next_line<R: AsyncRead + Unpin>(
    outbox: &Outbox,
    lines: &mut Lines<R>,
) -> io::Result<Option<Line>> {
    outbox.wait_until_read().await;
    lines.next().await
}

/// Writes the lines of an outbox until the reader is gone.
pub(crate) async fn write(outbox: &Outbox, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        outbox.take(&mut bytes).await;
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        outbox.written();
    }
}

// === impl Lines ===

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, searched: 0, is_passing_over: false }
    }

    /// The bytes of the line that was read last.
    pub(crate) fn get(&self, at: std::ops::Range<usize>) -> &[u8] {
        self.buffer.get(at).unwrap_or_default()
    }

    /// The next line; `None` at the end. An unterminated last line is dropped. Cancel safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let unread = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', unread) {
                let end = self.searched + end;
                let line = self.start..end;
                (self.start, self.searched) = (end + 1, end + 1);
                if std::mem::take(&mut self.is_passing_over) {
                    continue;
                }
                return Ok(Some(Line::Whole(line)));
            }
            self.searched = self.buffer.len();
            if self.is_passing_over || self.buffer.len() - self.start > MAX_LINE_BYTES {
                self.buffer.clear();
                self.buffer.shrink_to(READ_BYTES);
                (self.start, self.searched) = (0, 0);
                if !std::mem::replace(&mut self.is_passing_over, true) {
                    return Ok(Some(Line::TooLong));
                }
            } else if self.start > 0 {
                self.buffer.drain(..self.start);
                self.searched -= self.start;
                self.start = 0;
                if self.buffer.is_empty() {
                    buffer::empty(&mut self.buffer);
                }
            }
            self.buffer.reserve(READ_BYTES);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agents;
    use crate::credentials::Credentials;
    use crate::metrics::Metrics;
    use crate::runs::OwnerPolicy;
    use crate::sessions::{
        Authentication, Connection, MAX_UNREAD_BYTES, Service, ServiceOptions, Settings,
    };
    use crate::threads::DEFAULT_STATE_READS_PER_SECOND;
    use crate::upstream;
    use threadway_translate::run::ErrorDetail;

    async fn lines(bytes: &[u8]) -> Vec<Result<String, ()>> {
        let mut lines = Lines::new(bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(match line {
                Line::Whole(at) => Ok(String::from_utf8(lines.buffer[at].to_vec()).unwrap()),
                Line::TooLong => Err(()),
            });
        }
        all
    }

    #[tokio::test]
    async fn lines_are_cut_wherever_they_come_from() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(lines(b"a\n\nbc\r\nhalf").await, [ok("a"), ok(""), ok("bc\r")]);
        assert_eq!(lines(b"").await, []);
        let long = [vec![b'x'; 3 * READ_BYTES], b"\ny\n".to_vec()].concat();
        let read = lines(&long).await;
        assert_eq!((read[0].as_ref().unwrap().len(), &read[1]), (3 * READ_BYTES, &ok("y")));
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_passed_over() {
        let long = vec![b'x'; 3 * MAX_LINE_BYTES];
        let bytes = [b"a\n", &*long, b"\nb\n"].concat();
        let mut lines = Lines::new(&*bytes);
        let mut are_whole = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            assert!(
                lines.buffer.capacity() < MAX_LINE_BYTES + 4 * READ_BYTES || are_whole.len() != 1
            );
            are_whole.push(line != Line::TooLong);
        }
        assert_eq!(are_whole, [true, false, true]);
        assert!(lines.buffer.capacity() < 4 * READ_BYTES, "{}", lines.buffer.capacity());
    }

    #[tokio::test]
    async fn a_large_line_leaves_no_memory_behind() {
        let bytes = [vec![b'x'; 1_000_000], b"\ny\n".to_vec()].concat();
        let mut lines = Lines::new(&*bytes);
        while lines.next().await.unwrap().is_some() {}
        assert!(lines.buffer.capacity() <= READ_BYTES, "{}", lines.buffer.capacity());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answers_is_not_read_either() {
        const LINES: usize = 200_000;
        let url: upstream::BaseUrl = "http://127.0.0.1:1".parse().unwrap();
        let client = upstream::Client::new(url.clone(), None).unwrap();
        let upstream = agents::Upstream { name: "u".to_owned(), client };
        let agents = agents::Agents::new(vec![upstream.clone()], Vec::new());
        let credentials = Credentials::new(None, &url);
        let service = Service::new(ServiceOptions {
            agents,
            upstream,
            agent: None,
            settings: Settings::default(),
            credentials,
            owners: OwnerPolicy::Continue,
            error_detail: ErrorDetail::default(),
            log_bytes: 1024,
            state_reads_per_second: DEFAULT_STATE_READS_PER_SECOND,
            metrics: Metrics::default(),
        });
        let outbox = Outbox::new();
        let connection = Connection::new(Arc::new(service), Authentication::Key, outbox.clone());
        let (theirs, ours) = tokio::io::duplex(READ_BYTES);
        let (mut answers, mut asked) = tokio::io::split(theirs);
        let (reader, writer) = tokio::io::split(ours);
        let shutdown = CancellationToken::new();
        let client = async {
            let asks = async {
                asked.write_all(&b"x\n".repeat(LINES)).await.unwrap();
                asked.shutdown().await.unwrap();
            };
            let reads = async {
                // By then everything waits.
                tokio::time::sleep(Duration::from_secs(1)).await;
                let waiting = outbox.waiting_bytes();
                assert!(waiting >= MAX_UNREAD_BYTES, "{waiting}");
                assert!(waiting < MAX_UNREAD_BYTES + READ_BYTES, "{waiting}");
                let mut all = String::new();
                answers.read_to_string(&mut all).await.unwrap();
                assert_eq!(all.lines().count(), LINES);
            };
            tokio::join!(asks, reads);
        };
        let serves = async {
            serve(&connection, &outbox, reader, writer, &shutdown).await.unwrap();
        };
        tokio::join!(serves, client);
    }
}
