"""``momostream read``: print predictions, alarms or rejected rows of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.models import read_only
from momostream.cli.options import Table

__all__ = ["read"]


@command
def read(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="File written by run --store.")],
    what: Annotated[Table, typer.Argument(help="Predictions, alarms, or rejected rows (dead letters).")] = (
        Table.outputs
    ),
    after: Annotated[int, typer.Option(min=0, help="Start after this line number.")] = 0,
    numbers: Annotated[bool, typer.Option("--numbers", help="Print the line number before each line.")] = False,
) -> None:
    """Print predictions, alarms or rejected rows of a store, one JSON object per line; also while a run writes it.

    - `momostream read farm.db`
    - `momostream read farm.db dead`
    """
    from momostream.storage.lines import letter_text

    with read_only(store) as reader:
        if what is Table.dead:
            lines = ((number, letter_text(letter)) for number, letter in reader.dead(after))
        else:
            found = reader.outputs(after) if what is Table.outputs else reader.alarms(after)
            lines = ((number, output.text) for number, output in found)
        for number, text in lines:
            print(f"{number}\t{text}" if numbers else text)
