"""Copies tables of results into README.

A table lives once, in ``benchmarks/results/NAME.md``, between ``<!-- readme -->`` and ``<!-- /readme -->``. README has
``<!-- table: NAME -->`` and ``<!-- /table -->`` around the copy, which `filled` renews.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.harness import RESULTS

START, END = "<!-- readme -->", "<!-- /readme -->"
COPY = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)


def marked(table: str) -> str:
    """A part of a report that README may show.

    Examples
    --------
    >>> marked("| a |").splitlines()
    ['<!-- readme -->', '', '| a |', '', '<!-- /readme -->']
    """
    return f"{START}\n\n{table}\n\n{END}"


def table_of(name: str, folder: Path = RESULTS) -> str:
    """The marked part of the results of this name.

    Raises
    ------
    ValueError
        If there is not exactly one.
    """
    path = folder / f"{name}.md"
    found = re.findall(f"{START}(.*?){END}", path.read_text(encoding="utf-8"), re.DOTALL) if path.is_file() else []
    if len(found) != 1:
        raise ValueError(f"{name}.md has {len(found)} tables for README instead of one")
    return str(found[0]).strip()


def filled(text: str, folder: Path = RESULTS) -> str:
    """The text with all tables as they are in the results.

    Raises
    ------
    ValueError
        If a start has no end, or the other way round.
    """
    n_copies = len(COPY.findall(text))
    if not text.count("<!-- table:") == text.count("<!-- /table -->") == n_copies:
        raise ValueError("a table has a start or an end only")
    return COPY.sub(lambda copy: f"{copy[1]}\n{table_of(copy[2], folder)}\n\n{copy[4]}", text)
