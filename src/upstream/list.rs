//! Lists of runs and threads: without `select` if the server rejects it, and in parts if the whole is
//! too large.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::value::RawValue;

use super::answer_text::AnswerText;
use super::prepared_request::PreparedRequest;
use super::{Client, Error, MAX_ANSWER_BYTES};
use threadway_translate::json::{self, ObjectWriter};
use threadway_translate::langgraph::Unsupported;

/// What a list is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListKind {
    Runs,
    Threads,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    /// How many items precede it.
    pub(super) offset: usize,
    /// How many items it has at most.
    pub(super) limit: usize,
}

/// The parts of a list, as one JSON array of bounded size.
struct BoundedJsonArray<'a> {
    columns: &'a [&'a str],
    text: String,
}

// === impl Client ===

impl Client {
    /// The text of a list with these columns, or with all of them if the server rejects `select` in
    /// such lists. `prepared_request` makes the request.
    ///
    /// The JavaScript server sends all columns in any case, with the inputs of runs (langgraph-api
    /// 1.5.1). A list of more than [`MAX_ANSWER_BYTES`] is read again in parts. Each part is half as
    /// long as the one that was too large, and its items keep these columns only.
    pub(super) async fn list<'a>(
        &self,
        listed: ListKind,
        columns: &'a [&'a str],
        page: PageRange,
        call: impl Fn(PageRange, &'a [&'a str]) -> PreparedRequest,
    ) -> Result<AnswerText, Error> {
        match self.list_at_once(listed, columns, page, &call).await {
            Err(Error::TooLarge { .. }) if page.limit > 1 => {}
            list => return list,
        }
        let mut parts = BoundedJsonArray { columns, text: "[".to_owned() };
        let mut part = PageRange { limit: page.limit / 2, ..page };
        let end = page.offset + page.limit;
        while part.offset < end {
            part.limit = part.limit.min(end - part.offset);
            match self.list_at_once(listed, columns, part, &call).await {
                Ok(text) => {
                    let count = self.understood(text.read(|text| parts.push(text)), "a list")?;
                    if count < part.limit {
                        break;
                    }
                    part.offset += part.limit;
                }
                Err(Error::TooLarge { .. }) if part.limit > 1 => part.limit /= 2,
                Err(Error::TooLarge { limit }) => {
                    let (upstream, at) = (self.base(), part.offset);
                    // A metric counts it. Each request of a client may cause this line.
                    tracing::debug!(
                        %upstream, ?listed, at, limit,
                        "an item of a list is larger than the limit in bytes, and is left out"
                    );
                    part.offset += 1;
                }
                Err(error) => return Err(error),
            }
        }
        parts.text.push(']');
        Ok(AnswerText::from(parts.text))
    }

    async fn list_at_once<'a>(
        &self,
        listed: ListKind,
        columns: &'a [&'a str],
        page: PageRange,
        call: &impl Fn(PageRange, &'a [&'a str]) -> PreparedRequest,
    ) -> Result<AnswerText, Error> {
        if self.rejects_columns(listed).load(Ordering::Relaxed) {
            return call(page, &[]).text().await;
        }
        match call(page, columns).text().await {
            // The server may also have rejected something else: then the second request fails too.
            Err(error) if error.shows(Unsupported::Columns) => {
                let all = call(page, &[]).text().await?;
                let upstream = self.base();
                tracing::debug!(%upstream, ?listed, "the server rejects `select` in lists");
                self.rejects_columns(listed).store(true, Ordering::Relaxed);
                Ok(all)
            }
            answer => answer,
        }
    }

    fn rejects_columns(&self, listed: ListKind) -> &AtomicBool {
        let [of_runs, of_threads] = &*self.rejects_columns;
        match listed {
            ListKind::Runs => of_runs,
            ListKind::Threads => of_threads,
        }
    }
}

// === impl BoundedJsonArray ===

impl BoundedJsonArray<'_> {
    /// Appends a part, and returns how many items it has. `None` if it is malformed.
    ///
    /// Items that exceed the size of all parts together lack the inputs of their runs.
    fn push(&mut self, part: &str) -> Option<usize> {
        let items: Vec<&RawValue> = serde_json::from_str(part).ok()?;
        for item in &items {
            let members = json::members(item)?;
            let is_full = self.text.len() + item.get().len() > MAX_ANSWER_BYTES;
            let columns = self.columns.iter().filter(|column| !(is_full && **column == "kwargs"));
            let kept = columns.filter_map(|column| Some((*column, members.get(column)?)));
            let object = kept.fold(ObjectWriter::new(), |object, (column, value)| {
                object.raw(column, value.get())
            });
            self.text.push_str(if self.text.len() > 1 { "," } else { "" });
            self.text.push_str(object.finish().get());
        }
        Some(items.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_columns_and_are_bounded() {
        let large = "x".repeat(MAX_ANSWER_BYTES / 2);
        let run =
            |id: &str| format!(r#"[{{"run_id":"{id}","x":1,"kwargs":{{"input":"{large}"}}}}]"#);
        let columns = ["run_id", "kwargs", "metadata"];
        let mut parts = BoundedJsonArray { columns: &columns, text: "[".to_owned() };
        for id in ["a", "b", "c"] {
            assert_eq!(parts.push(&run(id)), Some(1));
        }
        assert_eq!(parts.push("[{}, {}]"), Some(2));
        assert_eq!(parts.push("[7]"), None);
        assert!(parts.text.starts_with(r#"[{"run_id":"a","kwargs":{"#), "the first has its input");
        assert!(parts.text.ends_with(r#"},{"run_id":"b"},{"run_id":"c"},{},{}"#));
        assert!(parts.text.len() < MAX_ANSWER_BYTES);
    }
}
