"""Distributions as text for a terminal, and as tables for a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["aligned", "counted", "html_table", "mean_and_std"]


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 row``, ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def mean_and_std(mean: Iterable[float], std: Iterable[float]) -> list[str]:
    """Cells such as ``8 ± 1``."""
    return [f"{m:.4g} ± {s:.3g}" for m, s in zip(mean, std, strict=True)]


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, indented, with columns that end below each other."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(map(str.rjust, row, widths)) for row in cells]


def html_table(header: Sequence[object], rows: Iterable[Sequence[object]], caption: str | None = None) -> str:
    """A table for notebooks."""
    above = "" if caption is None else f"<caption>{html.escape(caption)}</caption>"
    body = "".join(_html_row("td", row) for row in rows)
    return f"<table>{above}<thead>{_html_row('th', header)}</thead><tbody>{body}</tbody></table>"


def _html_row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
