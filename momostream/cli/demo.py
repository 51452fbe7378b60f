"""``momostream demo``: stream a simulated turbine, forecast it, and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.messages import import_models, require_matplotlib
from momostream.cli.options import SeedOption

__all__ = ["demo"]


@command
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the report and its figures.")] = Path("momostream-demo"),
    rows: Annotated[int, typer.Option(min=200, help="Rows to stream.")] = 2400,
    horizon: Annotated[int, typer.Option("--horizon", "-n", min=1, help="Number of rows to forecast.")] = 20,
    seed: SeedOption = None,
) -> None:
    """Stream a simulated wind turbine, forecast it, and write a report.

    The turbine is simulated by momostream itself; it is not the data set of the paper.
    """
    require_matplotlib("the demo")
    import_models()
    from momostream.cli.demo_feed import run_demo

    print(f"report: {run_demo(folder, rows, horizon, seed or 0)}")
