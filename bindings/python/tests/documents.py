"""The Python blocks of the documents, with the info words that say how each is run: CONTRIBUTING.md, "Blocks of code"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEADINGS_AND_BLOCKS = r"^#+ (.*)$|^```(\S+) ?(.*)\n([\s\S]*?)^```"


@dataclass(frozen=True)
class Block:
    page: str
    heading: str
    words: str
    text: str


def _blocks() -> list[Block]:
    found = []
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bindings").glob("*/*.md")]
    for path in sorted(pages):
        heading = ""
        for line, language, words, text in re.findall(HEADINGS_AND_BLOCKS, path.read_text(), re.MULTILINE):
            heading = line or heading
            if language == "python":
                found.append(Block(str(path.relative_to(ROOT)), heading, words, text))
    return found


BLOCKS = _blocks()


def of(file: str) -> list[str]:
    """The blocks with the words run=FILE, which are run by the tests of this file."""
    return [block.text for block in BLOCKS if block.words.split()[:1] == [f"run={Path(file).name}"]]
