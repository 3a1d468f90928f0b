//! Where the messages for a client wait: in one queue, or in one for each of its streams.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(crate) use super::queue::MAX_UNREAD_BYTES;
pub use super::queue::MAX_WAITING_BYTES;
use super::queue::Queue;
use crate::metrics::Charge;
use crate::sync::{Guard, Mutex};
use threadway_translate::acp::destination::Destination;

/// The most session streams that a client reads although it has not opened the sessions. A client
/// reads a session's stream before it loads the session.
pub const MAX_UNCONFIRMED_STREAMS: usize = 16;

/// How long one of several streams may be full. A client that reads none of it for so long has lost
/// track of it.
pub const STALL: Duration = Duration::from_mins(2);

/// The messages for a client. Clones share them.
#[derive(Clone)]
pub struct Outbox {
    /// Messages about the connection; without `apart`, all of them.
    connection: Queue,
    /// `None` if all messages are on one line.
    apart: Option<Arc<Mutex<Streams>>>,
    /// What a stream of its own counts as. Set if the client is on another machine.
    charge: Arc<OnceLock<Charge>>,
    /// Cancelled when the client has not read a stream of its own for [`STALL`], or when there is
    /// no room for its messages.
    stalled: CancellationToken,
}

/// The streams of a client that has several.
#[derive(Default)]
struct Streams {
    /// Whether the connection's stream is read.
    is_read: bool,
    sessions: HashMap<String, SessionStream>,
}

/// The stream of one session.
#[derive(Default)]
struct SessionStream {
    queue: Queue,
    is_read: bool,
    /// Whether the session is open, as far as is known here.
    is_open: bool,
    /// Whether the session was ever open.
    is_confirmed: bool,
}

/// The one reader of a stream.
pub struct StreamReader {
    queue: Queue,
    streams: Arc<Mutex<Streams>>,
    /// `None` for the connection's stream.
    session: Option<String>,
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReadable {
    /// Somebody reads it.
    IsRead,
    /// Too many streams of sessions are read that the client has not opened.
    TooManyUnconfirmed,
}

// === impl Outbox ===

impl Outbox {
    /// All messages on one line.
    pub fn new() -> Self {
        let (charge, stalled) = (Arc::default(), CancellationToken::new());
        Self { connection: Queue::new(), apart: None, charge, stalled }
    }

    /// A stream for the connection, and one for each session.
    pub fn apart() -> Self {
        Self { apart: Some(Arc::default()), ..Self::new() }
    }

    /// Waits until there is room for updates. A batch that is then put in may exceed the limit.
    ///
    /// A transport notices a client that does not read its one line. Of several streams, one may be
    /// full while the others are read.
    pub(crate) async fn wait_for_room(&self, to: Destination<'_>) {
        let queue = self.queue(to);
        if self.apart.is_none() {
            return queue.wait_for_room().await;
        }
        if tokio::time::timeout(STALL, queue.wait_for_room()).await.is_err() {
            self.stalled.cancel();
            // The transport ends the connection.
            std::future::pending::<()>().await;
        }
    }

    /// Charges the messages that wait.
    pub(crate) fn charged_to(&self, charge: Charge) {
        self.connection.charged_to(charge.another());
        // Set once, when the connection is opened.
        let _ = self.charge.set(charge);
    }

    /// Waits until a stream of several has been full for [`STALL`], or there was no room for a
    /// message.
    pub async fn stalled(&self) {
        self.stalled.cancelled().await;
    }

    /// Waits until the client has read enough for more of its requests to be read.
    pub async fn wait_until_read(&self) {
        self.connection.wait_until_read().await;
    }

    /// Whether no more requests of the client are to be read until it has read more.
    pub fn is_overfull(&self) -> bool {
        let sessions: Vec<_> = match &self.apart {
            None => Vec::new(),
            Some(streams) => {
                streams.lock().sessions.values().map(|stream| stream.queue.clone()).collect()
            }
        };
        let waiting = sessions.iter().chain([&self.connection]).map(Queue::waiting_bytes);
        waiting.sum::<usize>() >= MAX_UNREAD_BYTES
    }

    /// Appends whole lines.
    pub(crate) fn put<T>(&self, to: Destination<'_>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let (written, counted) = self.queue(to).put(write);
        if counted.is_err() {
            self.stalled.cancel();
        }
        written
    }

    /// Waits for lines and takes all of them, in exchange for the buffer, which is shrunk. Only one
    /// writer may call this, and not if the streams are apart.
    pub async fn take(&self, bytes: &mut Vec<u8>) {
        self.connection.take(bytes).await;
    }

    /// Reports that the taken bytes are written.
    pub fn written(&self) {
        self.connection.written();
    }

    /// Waits until nothing waits and everything taken is written.
    pub async fn wait_until_written(&self) {
        self.connection.wait_until_written().await;
    }

    /// How many bytes wait to be written on the connection's line.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.connection.waiting_bytes()
    }

    // --- streams apart ---

    /// The reader of the connection's stream. Only for an outbox whose streams are apart.
    pub fn read_connection(&self) -> Result<StreamReader, NotReadable> {
        let streams = self.apart.as_ref().ok_or(NotReadable::IsRead)?;
        if std::mem::replace(&mut streams.lock().is_read, true) {
            return Err(NotReadable::IsRead);
        }
        let (queue, streams) = (self.connection.clone(), Arc::clone(streams));
        Ok(StreamReader { queue, streams, session: None })
    }

    /// The reader of a session's stream. `is_open` says whether the client has opened the session.
    pub fn read_session(&self, id: &str, is_open: bool) -> Result<StreamReader, NotReadable> {
        let streams = self.apart.as_ref().ok_or(NotReadable::IsRead)?;
        let queue = {
            let mut streams = streams.lock();
            let known = streams.sessions.get(id);
            if known.is_some_and(|stream| stream.is_read) {
                return Err(NotReadable::IsRead);
            }
            let is_confirmed = is_open || known.is_some_and(|stream| stream.is_confirmed);
            let unconfirmed = |stream: &&SessionStream| stream.is_read && !stream.is_confirmed;
            if !is_confirmed
                && streams.sessions.values().filter(unconfirmed).count() >= MAX_UNCONFIRMED_STREAMS
            {
                return Err(NotReadable::TooManyUnconfirmed);
            }
            let stream = streams.sessions.entry(id.to_owned()).or_insert_with(|| self.stream());
            stream.is_read = true;
            stream.is_open |= is_open;
            stream.is_confirmed = is_confirmed;
            stream.queue.clone()
        };
        Ok(StreamReader { queue, streams: Arc::clone(streams), session: Some(id.to_owned()) })
    }

    /// Forgets a session that was closed. Its reader gets what waits.
    pub(super) fn close_session(&self, id: &str) {
        if let Some(streams) = &self.apart {
            streams.lock().release(id, |stream| stream.is_open = false);
        }
    }

    fn stream(&self) -> SessionStream {
        let queue = Queue::charged(self.charge.get().map(Charge::another));
        SessionStream { queue, ..SessionStream::default() }
    }

    fn queue(&self, to: Destination<'_>) -> Queue {
        let Some(streams) = &self.apart else { return self.connection.clone() };
        match to {
            Destination::Connection => self.connection.clone(),
            Destination::Session(id) => {
                let mut streams = streams.lock();
                if !streams.sessions.contains_key(id) {
                    streams.sessions.insert(id.to_owned(), self.stream());
                }
                streams.sessions.get_mut(id).map_or_else(
                    || self.connection.clone(),
                    |stream| {
                        (stream.is_open, stream.is_confirmed) = (true, true);
                        stream.queue.clone()
                    },
                )
            }
            Destination::Answer(id) => self.queue_if(streams, id, |_| true),
            Destination::Opened(id) => self.queue_if(streams, id, |stream| stream.is_read),
        }
    }

    /// The queue of a session if its stream fulfils a condition, else the connection's.
    fn queue_if(
        &self,
        streams: &Mutex<Streams>,
        id: &str,
        is_fit: impl Fn(&SessionStream) -> bool,
    ) -> Queue {
        let streams = streams.lock();
        let stream = streams.sessions.get(id).filter(|stream| is_fit(stream));
        stream.map_or_else(|| self.connection.clone(), |stream| stream.queue.clone())
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.connection.waiting_bytes();
        f.debug_struct("Outbox").field("waiting", &waiting).finish_non_exhaustive()
    }
}

// === impl Streams ===

impl Streams {
    /// Changes a session's stream, and removes it if nobody needs it any more.
    fn release(&mut self, id: &str, change: impl FnOnce(&mut SessionStream)) {
        if let Some(stream) = self.sessions.get_mut(id) {
            change(stream);
            if !stream.is_open && !stream.is_read {
                self.sessions.remove(id);
            }
        }
    }
}

// === impl StreamReader ===

impl StreamReader {
    /// Waits for lines and takes all of them, in exchange for the buffer, which is shrunk.
    pub async fn take(&self, bytes: &mut Vec<u8>) {
        self.queue.take(bytes).await;
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut streams: Guard<'_, Streams> = self.streams.lock();
        match &self.session {
            None => streams.is_read = false,
            Some(id) => streams.release(id, |stream| stream.is_read = false),
        }
    }
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamReader")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &Outbox, to: Destination<'_>, line: &str) {
        outbox.put(to, |out| out.extend_from_slice(line.as_bytes()));
    }

    async fn taken(reader: &StreamReader) -> String {
        let mut bytes = Vec::new();
        reader.take(&mut bytes).await;
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_opens_a_session_goes_where_the_client_reads() {
        let outbox = Outbox::apart();
        let connection = outbox.read_connection().unwrap();
        put(&outbox, Destination::Session("s"), "history\n");
        put(&outbox, Destination::Opened("s"), "loaded\n");
        assert_eq!(taken(&connection).await, "loaded\n");
        let session = outbox.read_session("s", true).unwrap();
        assert_eq!(taken(&session).await, "history\n");
        put(&outbox, Destination::Opened("s"), "loaded\n");
        assert_eq!(taken(&session).await, "loaded\n");
        // A session that is not open has no stream.
        put(&outbox, Destination::Answer("t"), "unknown\n");
        assert_eq!(taken(&connection).await, "unknown\n");
    }

    #[tokio::test]
    async fn a_stream_has_one_reader_and_few_are_read_before_their_sessions_are_open() {
        let outbox = Outbox::apart();
        let first = outbox.read_connection().unwrap();
        assert_eq!(outbox.read_connection().err(), Some(NotReadable::IsRead));
        drop(first);
        assert!(outbox.read_connection().is_ok());
        let read = |at: usize| outbox.read_session(&at.to_string(), false);
        let mut readers: Vec<_> =
            (0..MAX_UNCONFIRMED_STREAMS).map(|at| read(at).unwrap()).collect();
        assert_eq!(read(0).err(), Some(NotReadable::IsRead));
        assert_eq!(read(99).err(), Some(NotReadable::TooManyUnconfirmed));
        assert!(outbox.read_session("open", true).is_ok());
        // A session is confirmed by its first update.
        put(&outbox, Destination::Session("0"), "update\n");
        readers.push(read(99).unwrap());
        assert_eq!(read(98).err(), Some(NotReadable::TooManyUnconfirmed));
        drop(readers);
        assert!(read(98).is_ok());
    }

    #[tokio::test]
    async fn what_a_closed_session_held_is_freed() {
        let outbox = Outbox::apart();
        let streams = || outbox.apart.as_ref().unwrap().lock().sessions.len();
        put(&outbox, Destination::Session("s"), "update\n");
        let reader = outbox.read_session("s", true).unwrap();
        outbox.close_session("s");
        assert_eq!((streams(), &*taken(&reader).await), (1, "update\n"));
        drop(reader);
        assert_eq!(streams(), 0);
        put(&outbox, Destination::Session("t"), "update\n");
        outbox.close_session("t");
        assert_eq!(streams(), 0);
        drop(outbox.read_session("u", false));
        assert_eq!(streams(), 0);
        // What waits for an open session stays until it is read.
        put(&outbox, Destination::Session("v"), "update\n");
        drop(outbox.read_session("v", true));
        assert_eq!(taken(&outbox.read_session("v", true).unwrap()).await, "update\n");
    }

    #[tokio::test]
    async fn what_waits_on_all_streams_counts() {
        let outbox = Outbox::apart();
        for session in ["a", "b"] {
            assert!(!outbox.is_overfull());
            outbox.put(Destination::Session(session), |out| out.resize(MAX_UNREAD_BYTES / 2, b'x'));
        }
        assert!(outbox.is_overfull());
    }
}
