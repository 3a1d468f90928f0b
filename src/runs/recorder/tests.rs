//! Recordings: their names, bytes and limits, and what is not written.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use super::writer::{MAX_ID, end_of_blocks};
use super::*;

const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";
const PART: &str = "event: custom\ndata: {}\n\n";

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = format!("threadway-record-{process}-{count}");
        Self(std::env::temp_dir().join(directory))
    }

    fn recorder(&self, files: usize, bytes: usize) -> Recorder {
        Recorder::open(&Recording { dir: self.0.clone(), files, bytes }).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Records a run to its end.
fn record(recorder: &Recorder, run_id: &str, text: &str) {
    let mut run = recorder.run(Vec::new());
    run.push(text.as_bytes());
    run.flush("T", Some(run_id));
    run.close("the reading ended: finished", true);
    recorder.finish();
}

#[test]
fn a_run_becomes_a_file_of_what_was_sent() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    let mut run = recorder.run(Vec::new());
    run.push(b"event: custom\nda");
    run.push(b"ta: {}\n");
    run.flush("T", Some(RUN));
    run.push(b"\n");
    run.flush("T", Some(RUN));
    run.close("the reading ended: finished", true);
    recorder.finish();
    let name = format!("run-{RUN}.sse");
    assert_eq!(directory.names(), [&*name]);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        directory.text(&name),
        format!(
            ": threadway {version}: run {RUN} of thread T\n\n{PART}: the reading ended: finished\n\n"
        )
    );
    assert_eq!(recorder.0.queued.load(Ordering::Relaxed), 0);
    // No bytes came of this one.
    drop(recorder.run(Vec::new()));
    recorder.finish();
    assert_eq!(directory.names(), [name]);
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_recording() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    record(&directory.recorder(10, DEFAULT_BYTES), RUN, PART);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.0), 0o700);
    assert_eq!(mode(&directory.0.join(format!("run-{RUN}.sse"))), 0o600);
}

#[test]
fn an_id_leads_nowhere_else() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    record(&recorder, "../../x\0y\n", PART);
    record(&recorder, &"é/".repeat(1_000), PART);
    let long = format!("run-{}.sse", "_".repeat(MAX_ID));
    assert_eq!(directory.names(), [long, "run-______x_y_.sse".to_owned()]);
    // The id does not end the comment that names it.
    assert!(directory.text("run-______x_y_.sse").contains("run ../../x y  of thread T\n\n"));
}

#[cfg(unix)]
#[test]
fn a_link_is_not_followed_and_a_file_not_overwritten() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    let target = directory.0.join("target");
    std::os::unix::fs::symlink(&target, directory.0.join(format!("run-{RUN}.sse"))).unwrap();
    record(&recorder, RUN, PART);
    record(&recorder, RUN, PART);
    let taken = [".2.sse", ".3.sse", ".sse"].map(|end| format!("run-{RUN}{end}"));
    assert_eq!(directory.names(), taken);
    assert!(!target.exists());
}

#[test]
fn old_recordings_make_room_and_other_files_stay() {
    let directory = Directory::new();
    fs::create_dir_all(&directory.0).unwrap();
    for (at, name) in ["run-old.sse", "run-older.sse", "mine.sse"].into_iter().enumerate() {
        let path = directory.0.join(name);
        fs::write(&path, PART).unwrap();
        let age = Duration::from_secs(60 * (1 + at as u64));
        File::options().write(true).open(path).unwrap().set_modified(epoch() + age).unwrap();
    }
    // `run-old` was modified first.
    let recorder = directory.recorder(2, DEFAULT_BYTES);
    record(&recorder, "a", PART);
    assert_eq!(directory.names(), ["mine.sse", "run-a.sse", "run-older.sse"]);
    record(&recorder, "b", PART);
    record(&recorder, "c", PART);
    assert_eq!(directory.names(), ["mine.sse", "run-b.sse", "run-c.sse"]);
}

fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH
}

#[test]
fn all_recordings_together_are_limited_in_bytes() {
    let directory = Directory::new();
    let most = 3_000;
    let recorder = directory.recorder(10, most);
    let big = format!("data: {}\n\n", "x".repeat(1_000));
    for run_id in ["a", "b", "c"] {
        record(&recorder, run_id, &big);
    }
    assert_eq!(directory.names(), ["run-b.sse", "run-c.sse"]);
    // A run that alone exceeds the limit replaces all others, and is cut.
    let mut run = recorder.run(Vec::new());
    for _ in 0..10 {
        run.push(big.as_bytes());
        run.flush("T", Some("d"));
    }
    run.close("the reading ended: finished", true);
    recorder.finish();
    assert_eq!(directory.names(), ["run-d.sse"]);
    let text = directory.text("run-d.sse");
    assert!(text.len() < most + 500, "{}", text.len());
    let end = ": all recordings together reached `record.bytes`\n\nevent: not-whole\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn no_more_runs_are_recorded_at_once_than_there_may_be_files() {
    let directory = Directory::new();
    let recorder = directory.recorder(1, DEFAULT_BYTES);
    let mut runs = ["a", "b"].map(|run_id| {
        let mut run = recorder.run(Vec::new());
        run.push(PART.as_bytes());
        run.flush("T", Some(run_id));
        run
    });
    for run in &mut runs {
        run.close("the reading ended: finished", true);
    }
    recorder.finish();
    assert_eq!(directory.names(), ["run-a.sse"]);
}

#[test]
fn a_recording_that_waits_too_long_is_abandoned_and_its_run_does_not_wait() {
    // The thread that writes has received no command yet.
    let directory = Directory::new();
    writer::create_dir(&directory.0).unwrap();
    let (commands, waiting) = mpsc::channel();
    let queued = Arc::<AtomicUsize>::default();
    let next = AtomicU64::default();
    let recorder = Recorder(Arc::new(Shared { commands, queued: Arc::clone(&queued), next }));
    let mut run = recorder.run(Vec::new());
    let mebibyte = format!("data: {}\n\n", "x".repeat(1024 * 1024));
    for _ in 0..100 {
        run.push(mebibyte.as_bytes());
        run.flush("T", Some(RUN));
        assert!(queued.load(Ordering::Relaxed) <= MAX_QUEUED_BYTES);
    }
    // A recording that begins meanwhile makes no file and sends no command.
    let mut late = recorder.run(Vec::new());
    late.push(mebibyte.as_bytes());
    late.flush("T", Some("late"));
    drop((run, late));
    let recording = Recording { dir: directory.0.clone(), files: 9, bytes: DEFAULT_BYTES };
    let mut writer = Writer::new(recording, Arc::clone(&queued)).unwrap();
    drop(recorder);
    for command in &waiting {
        writer.handle(command);
    }
    assert_eq!(queued.load(Ordering::Relaxed), 0);
    let name = format!("run-{RUN}.sse");
    assert_eq!(directory.names(), [&*name]);
    let text = directory.text(&name);
    assert_eq!(text.matches("data: ").count(), 15);
    assert!(text.ends_with(": the disk was slower than the run\n\nevent: not-whole\n"));
}

#[test]
fn secrets_are_not_written_however_their_bytes_come() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    let secret = "sk-0123456789abcdef";
    let mut run = recorder.run(vec![secret.as_bytes().to_vec(), b"hi".to_vec(), vec![]]);
    let text = format!("data: [\"{secret}\", \"hi\", \"{secret}\"]\n\n");
    for piece in text.as_bytes().chunks(7) {
        run.push(piece);
        run.flush("T", Some(RUN));
    }
    run.on_request("9-0", vec![b"another-secret-of-24-byte".to_vec()]);
    run.push(b"data: another-secret-of-24-byte\n\n");
    run.flush("T", Some(RUN));
    run.close("the reading ended: finished", true);
    recorder.finish();
    let written = directory.text(&format!("run-{RUN}.sse"));
    let redacted = "[redacted by threadway]";
    assert!(written.contains(&format!("data: [\"{redacted}\", \"hi\", \"{redacted}\"]\n\n")));
    assert!(written.contains(&format!("data: {redacted}\n\n")), "{written}");
}

#[test]
fn a_lost_connection_leaves_no_half_of_an_event() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    let mut run = recorder.run(Vec::new());
    run.on_request("-1", Vec::new());
    run.on_join(None);
    run.push(PART.as_bytes());
    run.push(b"id: 7-0\nevent: cus");
    run.flush("T", Some(RUN));
    run.on_request("6-0", Vec::new());
    run.on_join(Some(1_795_308_346_000));
    run.push(b"id: 7-0\n");
    run.push(PART.as_bytes());
    run.flush("T", Some(RUN));
    run.push(b"data: the end never c");
    run.flush("T", Some(RUN));
    run.close("the reading ended: finished", true);
    recorder.finish();
    let text = directory.text(&format!("run-{RUN}.sse"));
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with("; joined: what LangGraph does not store of the beginning is missing")
    );
    let first = ": threadway joined the run after -1\n\n";
    assert!(text.contains(&format!("missing\n\n{first}{PART}")), "{text}");
    let again = ": threadway joined the run after 6-0; answered at 1795308346000\n\n";
    assert!(text.contains(&format!("{PART}{again}id: 7-0\n{PART}")), "{text}");
    assert!(text.ends_with(": the reading ended: finished\n\nevent: not-whole\n"), "{text}");
}

#[test]
fn a_run_whose_reading_stops_is_incomplete() {
    let directory = Directory::new();
    let recorder = directory.recorder(10, DEFAULT_BYTES);
    let mut run = recorder.run(Vec::new());
    run.push(PART.as_bytes());
    // Without a run id the file is named after the thread.
    run.flush("T", None);
    drop(run);
    recorder.finish();
    let text = directory.text("run-T.sse");
    assert!(text.ends_with(": the gateway stopped reading the run\n\nevent: not-whole\n"));
}

#[test]
fn events_end_at_empty_lines() {
    let cases: [(&str, usize); 10] = [
        ("", 0),
        ("data: a\n", 0),
        ("data: a\n\n", 9),
        ("data: a\r\n\r\n", 11),
        ("data: a\r\n", 0),
        ("data: a\r\r", 9),
        ("data: a\n\r\nb", 10),
        ("data: a\r\n\rb", 10),
        ("data: a\n\ndata: b\n\ndata", 18),
        ("\n\n\n", 3),
    ];
    for (text, end) in cases {
        assert_eq!(end_of_blocks(text.as_bytes(), 0), end, "{text:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_at_the_start() {
    let directory = Directory::new();
    fs::write(&directory.0, "a file").unwrap();
    let recording = Recording { dir: directory.0.clone(), files: 1, bytes: 1 };
    assert!(Recorder::open(&recording).is_err());
    fs::remove_file(&directory.0).unwrap();
}
