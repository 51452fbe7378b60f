"""``momostream fit``: learn a feed, and save the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from momostream.cli.command import INTERRUPTED, command
from momostream.cli.feeds import check_extent, limited, open_checked, open_files, plan_for
from momostream.cli.messages import import_models, notify
from momostream.cli.models import open_fleet, parse_settings
from momostream.cli.options import (
    BadRows,
    Columns,
    FileArgument,
    FileFormat,
    LastOption,
    LimitOption,
    ModelSettings,
    OverwriteOption,
    QuietOption,
    SkipBadRows,
    StartOption,
)
from momostream.cli.outputs import check_paths
from momostream.cli.watching import run_watched

__all__ = ["fit"]


@command
def fit(
    feed: FileArgument,
    columns: Columns,
    file_format: FileFormat,
    model: ModelSettings,
    save: Annotated[Path, typer.Option(metavar="FILE", help="Where to save the model.")],
    overwrite: OverwriteOption = False,
    limit: LimitOption = None,
    start: StartOption = None,
    last: LastOption = None,
    bad_rows: SkipBadRows = BadRows.stop,
    quiet: QuietOption = False,
) -> None:
    """Learn a feed without predicting, and save the model.

    - `momostream fit history.csv -t power -t wind --horizon 12 --save model.momo`
    - `momostream forecast model.momo`
    """
    check_paths({"FEED": feed, "--save": save})
    if save.exists() and not overwrite:
        raise ValueError(f"{save}: already exists: add --overwrite, or choose another file for --save")
    check_extent(start, last, has_end=feed != "-")

    def again() -> Any:
        return open_files(feed, opened.readings, opened.time, file_format, BadRows.skip, notes=False)

    opened = open_checked(feed, columns, file_format, bad_rows)
    with limited(opened, start, last, again) as source:
        import_models(columns.horizon is not None, quiet)
        from momostream.runs.run import Run

        plan = plan_for(source, columns)
        with open_fleet(plan, parse_settings(model, columns.horizon)) as fleet:
            work = Run(source, fleet, plan, bad_rows=bad_rows.value, on_bad=notify, learn_only=True)
            # A feed that cannot be read to its end leaves no model. One that the user stops leaves what was learnt.
            run_watched(work, source, limit, quiet=quiet)
            if work.n_rows:
                work.model.save(save)
    if not work.n_rows:
        raise ValueError(f"{source.name}: has no rows, nothing to save")
    if work.is_stopped or not quiet:
        notify(f"{'stopped: ' if work.is_stopped else ''}{work.n_rows:,} rows learnt, saved in {save}")
    if work.is_stopped:
        raise typer.Exit(INTERRUPTED)
