//! The figures, and the printed table.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    PacedCpu,
    FlatCpu,
    PacedMedian,
    PacedP99,
    /// The latency that the path adds to the direct one's [`PacedP99`](Self::PacedP99).
    AddedP99,
    FlatRate,
    SingleRate,
    IdleRun,
    IdleWhole,
    Viewer,
    StartMedian,
    StartP99,
    RunCpu,
    RushUpstream,
    RushStartMedian,
    RushStartP99,
    RushLiveMedian,
    RushLiveP99,
    RushBefore,
    RushWithAll,
    RushAfter,
    ColdFirst,
    ColdStart,
    ColdLive,
    ColdLag,
    LateMessages,
    ColdBytes,
    ColdShare,
    WarmFirst,
    WarmLive,
    WarmBytes,
    WarmShare,
}

/// The path of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    /// From the upstream to the client directly.
    Direct,
    /// Through the pass-through.
    Floor,
    /// Through the gateway.
    Gateway,
}

/// All figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<(Metric, Path), Vec<f64>>);

/// A row of the table.
struct Row {
    metric: Metric,
    what: &'static str,
    unit: &'static str,
    target: Target,
}

/// The target of the gateway's figure.
enum Target {
    /// None: the row is for comparison.
    Scale,
    /// At most this many times the pass-through's figure.
    TimesFloor(f64),
    /// At most this.
    AtMost(f64),
    /// At least this, or at least this share of the pass-through's figure.
    AtLeastOr(f64, f64),
}

const ROWS: &[Row] = &[
    row(
        Metric::PacedCpu,
        "CPU per token, 100 streams of 50 tokens/s",
        "µs",
        Target::TimesFloor(3.0),
    ),
    row(Metric::FlatCpu, "CPU per token, 100 streams flat out", "µs", Target::TimesFloor(3.0)),
    row(Metric::PacedMedian, "latency p50, 100 streams of 50 tokens/s", "µs", Target::Scale),
    row(Metric::PacedP99, "latency p99, likewise", "µs", Target::Scale),
    row(Metric::AddedP99, "added latency p99, likewise", "µs", Target::TimesFloor(1.5)),
    row(Metric::FlatRate, "100 streams flat out", "tokens/s", Target::Scale),
    row(
        Metric::SingleRate,
        "one stream flat out",
        "tokens/s",
        Target::AtLeastOr(30_000.0, 1.0 / 3.0),
    ),
    row(Metric::IdleRun, "memory per idle run with one viewer", "KiB", Target::TimesFloor(1.6)),
    row(
        Metric::IdleWhole,
        "memory of the process with all idle runs",
        "MiB",
        Target::TimesFloor(1.6),
    ),
    row(Metric::Viewer, "memory per viewer of one idle run", "KiB", Target::AtMost(24.0)),
    row(Metric::StartMedian, "upstream's headers to `RUN_STARTED`, p50", "ms", Target::Scale),
    row(Metric::StartP99, "upstream's headers to `RUN_STARTED`, p99", "ms", Target::AtMost(5.0)),
    row(Metric::RunCpu, "CPU per run of one token", "µs", Target::Scale),
    row(Metric::RushUpstream, "upstream's joins for all joiners", "", Target::AtMost(1.0)),
    row(Metric::RushStartMedian, "joiner to `RUN_STARTED`, p50", "ms", Target::Scale),
    row(Metric::RushStartP99, "joiner to `RUN_STARTED`, p99", "ms", Target::Scale),
    row(Metric::RushLiveMedian, "joiner to live, p50", "ms", Target::Scale),
    row(Metric::RushLiveP99, "joiner to live, p99", "ms", Target::Scale),
    row(Metric::RushBefore, "memory of the process before all joined", "MiB", Target::Scale),
    row(Metric::RushWithAll, "with all of them", "MiB", Target::Scale),
    row(Metric::RushAfter, "after the run's end, without them", "MiB", Target::Scale),
    row(Metric::LateMessages, "late joiner: text of the run's messages", "KiB", Target::Scale),
    row(
        Metric::ColdFirst,
        "cold: replay's first part to the first byte",
        "ms",
        Target::AtMost(50.0),
    ),
    row(Metric::ColdStart, "cold: to `RUN_STARTED`", "ms", Target::Scale),
    row(Metric::ColdLive, "cold: to live", "ms", Target::Scale),
    row(Metric::ColdLag, "cold: replay's last part to live", "ms", Target::Scale),
    row(Metric::ColdBytes, "cold: bytes until live", "KiB", Target::Scale),
    row(Metric::ColdShare, "less 4 KiB, through those of the text", "", Target::AtMost(1.2)),
    row(Metric::WarmFirst, "warm: to the first byte", "ms", Target::Scale),
    row(Metric::WarmLive, "warm: to live", "ms", Target::Scale),
    row(Metric::WarmBytes, "warm: bytes until live", "KiB", Target::Scale),
    row(Metric::WarmShare, "less 4 KiB, through those of the text", "", Target::AtMost(1.2)),
];

const fn row(metric: Metric, what: &'static str, unit: &'static str, target: Target) -> Row {
    Row { metric, what, unit, target }
}

/// The value below which this share of the values is.
pub(crate) fn percentile(values: &mut [u64], share: f64) -> f64 {
    values.sort_unstable();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "far fewer values than 2^52"
    )]
    let at = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(at).map_or(f64::NAN, |&value| float(value))
}

/// The median of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(figures.len().saturating_sub(1) / 2), at(figures.len() / 2))
}

#[expect(clippy::cast_precision_loss, reason = "no figure here comes near 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

// === impl Figures ===

impl Figures {
    /// Adds a round's figure.
    pub(crate) fn add(&mut self, metric: Metric, path: Path, figure: f64) {
        self.0.entry((metric, path)).or_default().push(figure);
    }

    /// The median of all rounds.
    fn median(&self, metric: Metric, path: Path) -> Option<f64> {
        self.0.get(&(metric, path)).cloned().map(median)
    }

    /// The text of a row for a path.
    fn shown(&self, metric: Metric, path: Path) -> Option<f64> {
        match (metric, path) {
            (Metric::AddedP99, Path::Direct) => None,
            (Metric::AddedP99, path) => {
                let direct = self.median(Metric::PacedP99, Path::Direct)?;
                Some(self.median(Metric::PacedP99, path)? - direct)
            }
            (metric, path) => self.median(metric, path),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | unit | direct | floor | threadway | ratio | target | |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|---|---|")?;
        for Row { metric, what, unit, target } in ROWS {
            let [direct, floor, gateway] =
                [Path::Direct, Path::Floor, Path::Gateway].map(|path| self.shown(*metric, path));
            if gateway.is_none() {
                continue;
            }
            // A figure below the noise cannot be a divisor.
            let ratio = floor.filter(|floor| *floor > 0.0).zip(gateway).map(|(f, g)| g / f);
            let verdict = target.is_met(gateway, ratio);
            writeln!(
                f,
                "| {what} | {unit} | {} | {} | {} | {} | {target} | {} |",
                shown(direct),
                shown(floor),
                shown(gateway),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                verdict.map_or("", |is_met| if is_met { "met" } else { "**missed**" }),
            )?;
        }
        Ok(())
    }
}

/// Three digits, or all before the decimal point.
fn shown(figure: Option<f64>) -> String {
    match figure {
        None => String::new(),
        Some(figure) if figure.abs() < 10.0 => format!("{figure:.2}"),
        Some(figure) if figure.abs() < 100.0 => format!("{figure:.1}"),
        Some(figure) => format!("{figure:.0}"),
    }
}

// === impl Target ===

impl Target {
    /// `None` without a target or a figure.
    fn is_met(&self, gateway: Option<f64>, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::Scale => None,
            Self::TimesFloor(most) => Some(ratio? <= *most),
            Self::AtMost(most) => Some(gateway? <= *most),
            Self::AtLeastOr(least, part) => Some(gateway? >= *least || ratio? >= *part),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale => Ok(()),
            Self::TimesFloor(most) => write!(f, "ratio ≤ {most}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeastOr(least, part) => write!(f, "≥ {least}, or ratio ≥ {part:.2}"),
        }
    }
}
