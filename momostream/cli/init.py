"""``momostream init``: write a first configuration file for `momostream serve`, from a file of rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from momostream.cli.command import command
from momostream.cli.feeds import open_files
from momostream.cli.messages import notify
from momostream.cli.options import BadRows, FileArgument, FileFormat, steps_or_span

__all__ = ["init"]

# Names under which feeds often have the machine of a row.
KEY_NAMES = ("key", "id", "machine", "turbine", "device", "sensor", "asset", "unit", "station", "meter")


@command
def init(
    feed: FileArgument,
    file_format: FileFormat,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")] = Path("farm.toml"),
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that identifies the machine of a row.")
    ] = None,
    horizon: Annotated[
        Any,
        typer.Option(
            "--horizon",
            "-n",
            parser=steps_or_span,
            metavar="N|SPAN",
            help="How far to forecast: a number of rows, or a span such as 6h.",
        ),
    ] = 12,
    push: Annotated[bool, typer.Option("--push", help="Rows like these will be pushed by HTTP.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a first configuration for serve from a file of rows.

    - `momostream init turbine.csv && momostream serve farm.toml`
    """
    if output.exists() and not force:
        raise ValueError(f"{output}: already exists: choose another file with --output, or add --force")
    with open_files(feed, None, "auto", file_format, BadRows.skip, key) as opened:
        found = key if key is not None else _key_of(opened)
        numbers = [name for name in opened.readings if name != found]
        time = opened.time
    if not numbers:
        raise ValueError(f"{feed}: has no column of numbers to forecast")
    text = farm_text(feed, numbers, time, found, horizon, push, file_format, output.parent)
    output.write_text(text, encoding="utf-8")
    notify(f"wrote {output}; look at it, then: momostream serve {output}")


def _key_of(feed: Any) -> str | None:
    """A column that names machines, by its name; None if none is called so."""
    return next((name for name in feed.columns if name.lower() in KEY_NAMES), None)


def farm_text(
    feed: str,
    targets: list[str],
    time: str | None,
    key: str | None,
    horizon: int | str,
    push: bool,
    file_format: FileFormat,
    folder: Path,
) -> str:
    """The text of a first configuration file.

    Examples
    --------
    >>> print(farm_text("north.csv", ["power"], "time", None, 12, True, FileFormat(), Path()))
    # Feeds and the page that shows them: momostream serve farm.toml
    # docs/operate.md has every key.
    <BLANKLINE>
    [serve]
    address = "127.0.0.1:8080"    # other addresses need a token
    title = "north"
    <BLANKLINE>
    [feeds.north]
    source = "http"    # rows are pushed: POST /feeds/north/rows
    time = "time"
    targets = ["power"]
    horizon = 12    # rows to forecast
    alarm_level = 0.999    # values outside this interval are alarms
    <BLANKLINE>
    """
    stem = Path(feed).name.partition(".")[0]
    name = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")[:64] or "feed"
    )
    source = os.path.relpath(feed, folder or ".") if not push else "http"
    lines = [
        "# Feeds and the page that shows them: momostream serve farm.toml",
        "# docs/operate.md has every key.",
        "",
        "[serve]",
        'address = "127.0.0.1:8080"    # other addresses need a token',
        f"title = {_toml(stem)}",
        "",
        f"[feeds.{name}]",
        f"source = {_toml(source)}" + (f"    # rows are pushed: POST /feeds/{name}/rows" if push else ""),
    ]
    lines += [] if key is None else [f"key = {_toml(key)}    # the machine of a row"]
    lines += [f"time = {_toml('none' if time is None else time)}"]
    lines += [f"targets = [{', '.join(map(_toml, targets))}]"]
    lines += [
        f"horizon = {horizon}    # rows to forecast" if isinstance(horizon, int) else f"horizon = {_toml(horizon)}"
    ]
    lines += ["alarm_level = 0.999    # values outside this interval are alarms"]
    plain = FileFormat()
    for field in ("encoding", "delimiter", "decimal", "time_format"):
        if getattr(file_format, field) != getattr(plain, field):
            lines.append(f"{field} = {_toml(str(getattr(file_format, field)))}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """A text as TOML writes it: JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)
