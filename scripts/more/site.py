"""What scripts/docs needs besides mdBook.

    site.py source DIR   writes the sources of a book with the pages of docs/ to DIR
    site.py check DIR    names each link between the HTML files in DIR that leads nowhere

The table in docs/README.md is the table of contents, so that no second one has to be kept. A link that leaves docs/, such as one to
an example, leads to the file in the repository, as it was in the version of the site.
"""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path("docs")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
BLOCK = re.compile(r"(?ms)^ *(```+|~~~+).*?^ *\1")
# Pages that people look for by other words than those of the table.
TITLES = {
    "use/waiting.md": "A fair Redis semaphore: wait in line",
    "use/llm-budgets.md": "Limit concurrent LLM API calls",
    "languages/integrations.md": "Celery global concurrency, FastAPI, Django",
    "languages/shell.md": "Shell: cron without overlap",
    "migration.md": "Alternative to Bottleneck, Redisson, flock …",
}


def package():
    """The version and the description of the library, and the repository's address."""
    metadata = subprocess.check_output(["cargo", "metadata", "--no-deps", "--format-version", "1"])
    found = next(package for package in json.loads(metadata)["packages"] if package["name"] == "permits")
    module = re.search(r"(?m)^module (.+)/bindings/go$", Path("bindings/go/go.mod").read_text())[1]
    return found["version"], found["description"], f"https://{module}"


def moved(page, target, repository, version):
    """The target of a link on `page`, as it is on the site."""
    parts = urlsplit(target)
    if parts.scheme or not parts.path:
        return target
    path = Path(os.path.normpath(page.parent / unquote(parts.path)))
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if not path.is_relative_to(DOCS) or path.is_dir():
        return f"{repository}/{'tree' if path.is_dir() else 'blob'}/v{version}/{path}{anchor}"
    if path.name == "README.md":
        path = path.with_name("index.md")
    return os.path.relpath(path, page.parent) + anchor


def outside_blocks(text, replace):
    """Calls `replace` on the parts of a page that are not blocks of code."""
    parts, end = [], 0
    for code in BLOCK.finditer(text):
        parts += [replace(text[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*parts, replace(text[end:])])


def contents(text):
    """The table of contents: a part for each row, a chapter for each page that the row links."""
    listed, lines = {"README.md", "start.md"}, ["# Summary", "", "[Documents](index.md)", "[Start](start.md)"]
    for part, row in re.findall(r"(?m)^\| \*\*(.+?)\*\*[^|]*\| (.+) \|$", text):
        chapters = []
        for label, target in LINK.findall(row):
            path = target.partition("#")[0]
            if not path.startswith("..") and path not in listed:
                listed.add(path)
                label = TITLES.get(path, label[0].upper() + label[1:])
                chapters.append(f"- [{label}]({path.replace('README.md', 'index.md')})")
        if chapters:
            lines += ["", f"# {part[0].upper()}{part[1:]}", "", *chapters]
    return "\n".join([*lines, ""]), listed


def source(into):
    version, description, repository = package()
    summary, listed = contents((DOCS / "README.md").read_text())
    pages = sorted(DOCS.rglob("*.md"))
    missing = [str(page) for page in pages if str(page.relative_to(DOCS)) not in listed]
    if missing:
        sys.exit(f"the table in docs/README.md links no {', '.join(missing)}")
    shutil.copytree(DOCS, into / "src", ignore=shutil.ignore_patterns("*.md"))
    for page in pages:

        def links(text, page=page):
            return LINK.sub(lambda link: f"[{link[1]}]({moved(page, link[2], repository, version)})", text)

        to = into / "src" / page.relative_to(DOCS)
        if to.name == "README.md":
            to = to.with_name("index.md")
        to.write_text(outside_blocks(page.read_text(), links))
    (into / "src" / "SUMMARY.md").write_text(summary)
    (into / "book.toml").write_text(
        f"""[book]
title = "permits {version}"
description = {json.dumps(description)}
language = "en"
src = "src"

[output.html]
git-repository-url = "{repository}"
no-section-label = true
default-theme = "light"
preferred-dark-theme = "navy"
"""
    )


class Page(html.parser.HTMLParser):
    """The links and the anchors of an HTML page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.anchors |= {of[name] for name in ("id", "name") if of.get(name)}
        self.links += [of[name] for name in ("href", "src") if of.get(name)]


def check(root):
    # The table of contents and the page for printing repeat the others.
    left_out = {"print.html", "toc.html", "404.html"}
    pages = {path.resolve(): Page(path.read_text()) for path in root.rglob("*.html") if path.name not in left_out}
    faults = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            is_there = to.exists() and (to not in pages or not parts.fragment or unquote(parts.fragment) in pages[to].anchors)
            if not is_there and to.name not in left_out:
                faults.append(f"{path.relative_to(root.resolve())}: {link}")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links")
    sys.exit("\n".join(["These links lead nowhere:", *faults]) if faults else 0)


if __name__ == "__main__":
    {"source": source, "check": check}[sys.argv[1]](Path(sys.argv[2]))
