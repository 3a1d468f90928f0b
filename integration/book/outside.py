"""A preprocessor for mdBook: it makes links to files outside of docs/ lead to the repository."""

import json
import posixpath
import re
import sys

LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
IMAGES = (".png", ".svg")


def rewritten(content: str, chapter: str, repository: str) -> str:
    def of(found: re.Match) -> str:
        before, target, after = found.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(chapter), target))
        if "://" in target or target.startswith("mailto:") or path.startswith("docs/"):
            return found.group()
        view = "raw" if path.endswith(IMAGES) else "blob"
        return f"{before}{repository}/{view}/main/{path}{after}"

    return LINK.sub(of, content)


def rewrite(items: list, repository: str) -> None:
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            chapter["content"] = rewritten(chapter["content"], chapter["path"] or "", repository)
            rewrite(chapter["sub_items"], repository)


def main() -> None:
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0 if sys.argv[2:] == ["html"] else 1)
    context, book = json.load(sys.stdin)
    repository = context["config"]["output"]["html"]["git-repository-url"]
    rewrite(book.get("items", book.get("sections")), repository)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
