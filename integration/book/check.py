"""Builds the site of docs/ with mdBook, and checks every link of the site, of README.md and of the other documents.

usage: check.py DIRECTORY     writes the site to DIRECTORY

A link must lead to an existing file, and its fragment to a heading of that file. Links to other hosts are not
checked, but links to this repository must name a file of it. Every document in docs/ must be a chapter.
"""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/threadway/threadway"
LEAST_LINKS = 200  # of the site: a check that sees nothing must fail
MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.add(found["id"])
        for name in ("href", "src"):
            if found.get(name) and tag in ("a", "img"):
                self.links.append(found[name])


def of_repository(link: str) -> Path | None:
    parts = link.removeprefix(REPOSITORY).split("/", 3)
    is_file = link.startswith(REPOSITORY) and len(parts) == 4 and parts[1] in ("blob", "raw", "tree") and parts[2] == "main"
    return ROOT / unquote(parts[3].split("#")[0]) if is_file else None


def faults_of_site(site: Path) -> list[str]:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name not in ("print.html", "toc.html", "404.html")}
    faults, links = [], 0
    for path, page in pages.items():
        for link in page.links:
            links += 1
            own = of_repository(link)
            if own is not None and "/edit/" not in link and not own.exists():
                faults.append(f"{path.relative_to(site)}: the repository has no {own.relative_to(ROOT)}")
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                faults.append(f"{path.relative_to(site)}: there is no {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                faults.append(f"{path.relative_to(site)}: {link} has no such heading")
    if links < LEAST_LINKS:
        faults.append(f"the site has {links} links, fewer than {LEAST_LINKS}: the check does not see them")
    return faults


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def faults_of_markdown(document: Path) -> list[str]:
    faults = []
    name = document.relative_to(ROOT)
    for link in MARKDOWN_LINK.findall(CODE.sub("", document.read_text())):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (document.parent / unquote(parts.path)).resolve() if parts.path else document
        if not target.exists():
            faults.append(f"{name}: there is no {link}")
        elif parts.fragment and target.suffix == ".md" and parts.fragment not in {anchor(h) for h in HEADING.findall(target.read_text())}:
            faults.append(f"{name}: {link} has no such heading")
    return faults


def faults_of_index() -> list[str]:
    """docs/llms.txt, which mdBook copies to the root of the site, names files of the repository."""
    links = MARKDOWN_LINK.findall((ROOT / "docs" / "llms.txt").read_text())
    faults = [f"docs/llms.txt: the repository has no {link}" for link in links if (own := of_repository(link)) is None or not own.exists()]
    return faults or ([] if links else ["docs/llms.txt has no links"])


def documents() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    skipped = {"node_modules", "target", ".cache"}
    return [path for path in ROOT.rglob("*.md") if not skipped & set(path.parts)]


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    mdbook = Path(sys.executable).with_name("mdbook")
    made = subprocess.run([mdbook, "build", ROOT / "docs", "--dest-dir", site], cwd=ROOT / "docs", env=os.environ | {"MDBOOK_LOG": "warn"}, capture_output=True, text=True)
    if made.returncode != 0 or made.stderr.strip():
        print(f"not ok - mdBook: {made.stderr}")
        return 1
    summary = (ROOT / "docs" / "SUMMARY.md").read_text()
    chapters = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if path.name != "SUMMARY.md"]
    left_out = [chapter for chapter in chapters if f"({chapter})" not in summary]
    checks = {
        "every document is a chapter": [f"docs/SUMMARY.md does not name {name}" for name in left_out],
        "the site's links": faults_of_site(site),
        "the links of llms.txt": faults_of_index(),
        "the links of the Markdown": [fault for path in documents() for fault in faults_of_markdown(path)],
    }
    for what, faults in checks.items():
        print("\n".join([f"{'not ok' if faults else 'ok'} - {what}", *(f"  {fault}" for fault in faults)]))
    return int(any(checks.values()))


if __name__ == "__main__":
    sys.exit(main())
