"""Writes the figures of `bench/peers/run` into the documents: the tables between markers, and the picture."""

import json
import math
import re
import statistics
from pathlib import Path

ENOUGH = 0.97  # the share of the tokens in time from which a server keeps up
ORDER = ("direct", "nginx", "floor", "threadway", "adapter", "copilotkit", "python", "tanstack")
ONE_STREAM = "no: a run has one stream"
AT_LANGGRAPH = "no: each viewer joins the run at LangGraph"
NO_VIEWERS = {"adapter": ONE_STREAM, "python": ONE_STREAM, "nginx": AT_LANGGRAPH, "floor": AT_LANGGRAPH}
LOADS = {"slow20": "20 streams of 50 tokens/s", "slow100": "100 streams of 50 tokens/s", "slow1000": "1,000 streams of 5 tokens/s"}
VIEWS = {"view100": "100 viewers of 50 tokens/s", "view1000": "1,000 viewers of 10 tokens/s"}


def brief(figure: dict) -> str:
    """One line of a measurement, for the person who waits."""
    shown = {name: round(value, 3) if isinstance(value, float) else value for name, value in figure.items() if name not in ("checks", "round")}
    return json.dumps(shown)


# ---------------------------------------------------------------- figures
class Figures:
    def __init__(self, stored: dict) -> None:
        self.all, self.titles = stored["figures"], stored["titles"]
        self.names = [name for name in ORDER if any(name in part for part in self.all.values())]

    def of(self, part: str, name: str) -> list[dict]:
        return self.all.get(part, {}).get(name, [])

    def values(self, part: str, name: str, path: str) -> list[float]:
        found = []
        for figure in self.of(part, name):
            for key in path.split("."):
                figure = (figure or {}).get(key)
            if figure is not None:
                found.append(figure)
        return found

    def median(self, part: str, name: str, path: str) -> float | None:
        values = self.values(part, name, path)
        return statistics.median(values) if values else None

    def paired(self, part: str, name: str, base: str, path: str, of=lambda own, other: own / other) -> list[float]:
        """In each round, a figure against that of the base in the same round."""
        rounds = {figure["round"]: figure for figure in self.of(part, base)}
        pairs = [(figure, rounds[figure["round"]]) for figure in self.of(part, name) if figure["round"] in rounds]

        def take(figure: dict) -> float | None:
            for key in path.split("."):
                figure = (figure or {}).get(key)
            return figure

        return [of(take(own), take(other)) for own, other in pairs if take(own) is not None and take(other)]

    def keeps_up(self, part: str, name: str) -> bool:
        shares = self.values(part, name, "share")
        speak = [figure["all_speak"] for figure in self.of(part, name)]
        return bool(shares) and statistics.median(shares) >= ENOUGH and all(speak)

    def why_not(self, part: str, name: str) -> str:
        """Why there is no figure."""
        if not self.of(part, name):
            return "no: too slow for 5,000 tokens/s" if part == "slow1000" else "no: too slow for 1,000 tokens/s"
        share = self.median(part, name, "share")
        return f"no: {share:.0%} of the tokens in time"

    def failed(self, name: str) -> str:
        """What was lost, if anything, for the row's name."""
        figures = [figure for part in self.all.values() for figure in part.get(name, []) if "checks" in figure]
        failed = sum(figure["checks"]["failed"] for figure in figures)
        streams = failed + sum(figure["checks"]["whole"] for figure in figures)
        return f" (**{failed} of {streams} streams lost data or broke**)" if failed else ""

    def title(self, name: str) -> str:
        title = f"**{self.titles[name]}**" if name == "threadway" else self.titles[name]
        return title + self.failed(name)


def number(value: float) -> str:
    """Three digits."""
    if abs(value) >= 1_000:
        return f"{round(value, 2 - int(math.log10(abs(value)))):,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cell(values: list[float], unit: str = "") -> str:
    """The median, and the lowest and the highest of all rounds."""
    if not values:
        return ""
    middle = f"{number(statistics.median(values))}{unit}"
    return middle if min(values) == max(values) else f"{middle} ({number(min(values))} .. {number(max(values))})"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


# ---------------------------------------------------------------- tables
def flat(f: Figures) -> str:
    rows = []
    for name in f.names:
        if f.of("flat1", name):
            rows.append([
                f.title(name), cell(f.values("flat1", name, "rate")), cell(f.paired("flat1", name, "adapter", "rate"), " ×"),
                cell(f.values("flat1", name, "cpu_us")), cell(f.paired("flat1", name, "adapter", "cpu_us", lambda own, base: base / own), " ×"),
                number(f.median("slow20", name, "bytes") or f.median("flat1", name, "bytes")), cell(f.values("flat8", name, "rate")), cell(f.values("flat8", name, "cpu_us"))])
    return table(["server", "tokens/s of one run", "more than `@ag-ui/langgraph`", "CPU a token, µs", "less than `@ag-ui/langgraph`",
                  "bytes a token", "tokens/s of eight runs", "CPU a token, µs"], rows)


def slow(f: Figures) -> str:
    rows = []
    for name in f.names:
        row = [f.title(name)]
        for part in LOADS:
            if not f.keeps_up(part, name):
                row += [f.why_not(part, name), ""]
            elif name == "direct":
                row += ["", f"its p99: {cell(f.values(part, name, 'latency.p99_ms'))}"]
            else:
                added = f.paired(part, name, "direct", "latency.p99_ms", lambda own, base: own - base)
                row += [cell(f.values(part, name, "cpu_us")), cell(added)]
        row += [cell(f.values("short", name, "cpu_ms")), cell(f.values("short", name, "latency.p50_ms"))]
        rows.append(row)
    head = ["server"]
    for load in ("20 × 50/s", "100 × 50/s", "1,000 × 5/s"):
        head += [f"{load}: CPU a token, µs", "added p99, ms"]
    return table([*head, "a run of five: CPU, ms", "it lasts, ms"], rows)


def viewers(f: Figures) -> str:
    rows = []
    for name in f.names:
        if name == "direct":
            continue
        row = [f.title(name)]
        for part in VIEWS:
            if name in NO_VIEWERS:
                row += [NO_VIEWERS[name], ""]
            elif not f.keeps_up(part, name):
                row += [f.why_not(part, name), ""]
            else:
                row += [cell(f.values(part, name, "cpu_us")), cell(f.values(part, name, "latency.p99_ms"))]
        row.append(cell(f.values("view1000", name, "kib")) if f.keeps_up("view1000", name) else "")
        rows.append(row)
    return table(["server", "100 × 50/s: CPU of a viewer's token, µs", "p99, ms", "1,000 × 10/s: CPU of a viewer's token, µs", "p99, ms",
                  "memory a viewer, KiB"], rows)


def cut(f: Figures) -> str:
    rows = []
    for name in f.names:
        for figure in f.of("cut", name):
            live = lambda seconds: "never" if seconds is None else f"{seconds:.1f} s"
            begun = "" if figure["all_speak"] else ", not all in time"
            rows.append([f.title(name), f"{figure['viewers']:,}{begun}", live(figure["half_s"]), live(figure["all_s"]),
                         f"{figure['whole']:,}", f"{figure['held']:.0%}"])
    return table(["server", "viewers", "half of them live again after", "all of them after", "have the whole answer at the end",
                  "of the answer, a viewer holds"], rows)


def memory(f: Figures) -> str:
    rows = []
    for name in f.names:
        if figures := f.of("memory", name):
            idle = [figure["kib"] for figure in figures if figure["all_speak"]]
            rows.append([f.title(name), cell(f.values("memory", name, "base_mib")), cell(idle) or "no: not all streams began in time",
                         f"{figures[0]['streams']:,}"])
    return table(["server", "after ten runs, MiB", "an idle stream, KiB", "streams"], rows)


def worse(f: Figures) -> str:
    """Where threadway costs more than another server."""
    lines = []

    def compare(what: str, part: str, path: str, unit: str, is_more_better: bool = False, keeps=lambda name: True) -> None:
        own = f.median(part, "threadway", path)
        if own is None:
            return
        better = []
        for name in f.names:
            other = f.median(part, name, path)
            if name not in ("threadway", "direct") and other is not None and keeps(name) and (other > own if is_more_better else other < own):
                better.append(f"{f.titles[name]} {number(other)}")
        if better:
            lines.append(f"- {what}: {number(own)} {unit}; {', '.join(better)}.")

    compare("tokens/s of one run", "flat1", "rate", "tokens/s", True)
    compare("CPU of a token, one run flat out", "flat1", "cpu_us", "µs")
    compare("tokens/s of eight runs", "flat8", "rate", "tokens/s", True)
    compare("CPU of a token, eight runs flat out", "flat8", "cpu_us", "µs")
    compare("bytes of a token", "slow20", "bytes", "bytes")
    for part, load in LOADS.items():
        compare(f"CPU of a token, {load}", part, "cpu_us", "µs", keeps=lambda name, part=part: f.keeps_up(part, name))
        compare(f"p99 of a token, {load}", part, "latency.p99_ms", "ms", keeps=lambda name, part=part: f.keeps_up(part, name))
    compare("CPU of a run of five tokens", "short", "cpu_ms", "ms")
    for part, load in VIEWS.items():
        compare(f"CPU of a viewer's token, {load}", part, "cpu_us", "µs", keeps=lambda name, part=part: f.keeps_up(part, name))
    compare("memory of an idle stream", "memory", "kib", "KiB")
    return "\n".join(lines)


def added(f: Figures, part: str, name: str) -> float:
    return statistics.median(f.paired(part, name, "direct", "latency.p99_ms", lambda own, base: own - base))


def ratios(f: Figures) -> tuple[str, str, str]:
    """Beside the adapter: throughput, CPU and bytes."""
    more = statistics.median(f.paired("flat1", "threadway", "adapter", "rate"))
    less = statistics.median(f.paired("flat1", "threadway", "adapter", "cpu_us", lambda own, base: base / own))
    bytes_less = f.median("slow20", "adapter", "bytes") / f.median("slow20", "threadway", "bytes")
    return f"{more:.0f}", f"{less:.0f}", f"{bytes_less:.0f}"


def headline(f: Figures) -> str:
    more, less, fewer = ratios(f)
    return (f"**threadway passes on {number(f.median('flat1', 'threadway', 'rate'))} tokens a second of one run: {more} times as many as "
            f"`@ag-ui/langgraph` in Node, with 1/{less} of its CPU and 1/{fewer} of its bytes for each.**\n"
            f"With 100 streams of 50 tokens a second it adds {added(f, 'slow100', 'threadway'):.2f} ms to the 99th percentile of a token's "
            f"latency; a bare pass-through adds {added(f, 'slow100', 'floor'):.2f} ms.")


def readme(f: Figures) -> str:
    more, less, fewer = ratios(f)
    return (f"It passes on {more} times as many tokens a second as `@ag-ui/langgraph` in Node, with 1/{less} of the CPU and 1/{fewer} of "
            "the bytes for each: [benchmarks](docs/benchmarks.md).")


def setup(stored: dict) -> str:
    machine, versions = stored["machine"], stored["versions"]
    dates = sorted(set(stored["dates"].values()))
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (f"Measured on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, on {machine['cores']} cores of an {machine['cpu']}, "
            f"Linux {machine['kernel']}; threadway is built with the profile `{stored['profile']}`.\nVersions: {names}.")


# ---------------------------------------------------------------- picture
STYLE = """text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 } .of { fill: #59636e }
rect { fill: #8c959f } rect.own { fill: #0969da } rect.ground { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .of { fill: #9198a1 } rect { fill: #656d76 } rect.own { fill: #4493f8 } rect.ground { fill: #0d1117 } }"""
WIDTH, NAMES, BARS, ROW = 860, 230, 480, 24


def picture(f: Figures) -> str:
    panels = [
        ("Tokens a second of one run, flat out (more is better)", {name: f.median("flat1", name, "rate") for name in f.names}, "", ""),
        ("CPU of a token, one run flat out, µs (less is better)", {name: f.median("flat1", name, "cpu_us") for name in f.names}, " µs", ""),
        ("Added to the p99 of a token, 20 streams of 50 tokens/s, ms (less is better)",
         {name: added(f, "slow20", name) if name != "direct" and f.keeps_up("slow20", name) else None for name in f.names}, " ms", "cannot keep up"),
        ("Of the answer, what a viewer holds when the gateway is killed in mid-run and started again (more is better)",
         {name: f.median("cut", name, "held") and f.median("cut", name, "held") * 100 for name in f.names if f.of("cut", name)}, " %", ""),
    ]
    out, y = [], 14
    for title, values, unit, missing in panels:
        values = {name: value for name, value in values.items() if name != "direct"}
        y += 18
        out.append(f'<text class="title" x="16" y="{y}">{title}</text>')
        most = max((value for value in values.values() if value is not None), default=1.0)
        for name, value in values.items():
            y += ROW
            label = f.titles[name].replace("`", "")
            out.append(f'<text x="{16 + NAMES - 12}" y="{y}" text-anchor="end">{label}</text>')
            if value is None:
                out.append(f'<text class="of" x="{16 + NAMES}" y="{y}">{missing}</text>')
                continue
            width = max(2.0, max(0.0, value) / most * BARS)
            out.append(f'<rect{" class=" + chr(34) + "own" + chr(34) if name == "threadway" else ""} x="{16 + NAMES}" y="{y - 13}" width="{width:.0f}" height="16" rx="2"/>')
            out.append(f'<text class="of" x="{16 + NAMES + width + 8:.0f}" y="{y}">{number(value)}{unit}</text>')
        y += 22
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
            f'aria-label="threadway beside its peers, in bars">\n<style>{STYLE}</style>\n<rect class="ground" width="{WIDTH}" height="{y}" rx="6"/>\n'
            + "\n".join(out) + "\n</svg>\n")


# ---------------------------------------------------------------- write
def put(page: Path, name: str, text: str) -> None:
    """Replaces what is between the markers of this name."""
    begin, end = f"<!-- {name}: written by bench/peers/run -->", f"<!-- {name}: end -->"
    before = page.read_text()
    after = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{text}\n{end}", before, flags=re.DOTALL)
    if begin not in before:
        raise ValueError(f"{page} has no marker {begin}")
    page.write_text(after)


def write(stored: dict, root: Path) -> None:
    f = Figures(stored)
    page = root / "docs" / "benchmarks.md"
    for name, text in (("headline", headline(f)), ("setup", setup(stored)), ("flat", flat(f)), ("slow", slow(f)), ("viewers", viewers(f)),
                       ("cut", cut(f)), ("memory", memory(f)), ("worse", worse(f))):
        put(page, name, text)
    put(root / "README.md", "benchmarks", readme(f))
    (root / "docs" / "benchmarks.svg").write_text(picture(f))
