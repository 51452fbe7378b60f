"""Fenced blocks of Markdown pages."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FENCE = "```"


class Block(NamedTuple):
    language: str
    """The word after the opening fence."""
    line: int
    """Number of the first line inside, from 1."""
    text: str

    @property
    def in_place(self) -> str:
        """The text at its line of the page, so that tracebacks show the right line."""
        return "\n" * (self.line - 1) + self.text


def fenced_blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    blocks: list[Block] = []
    opened: tuple[str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None and line.startswith(FENCE):
            opened, lines = (line.removeprefix(FENCE).strip(), number + 1), []
        elif opened is not None and line == FENCE:
            blocks.append(Block(*opened, "\n".join(lines)))
            opened = None
        elif opened is not None:
            lines.append(line)
    assert opened is None, f"{path.name}: a block is not closed"
    return blocks
