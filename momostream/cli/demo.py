"""``momostream demo``: stream a simulated turbine, forecast it, and write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.messages import (
    explain_compiling,
    import_models,
    notify,
    require_matplotlib,
    require_serve,
)
from momostream.cli.options import SeedOption

__all__ = ["demo"]


@command
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the report and its figures.")] = Path("momostream-demo"),
    rows: Annotated[int, typer.Option(min=200, help="Rows to stream.")] = 2400,
    horizon: Annotated[int, typer.Option("--horizon", "-n", min=1, help="Number of rows to forecast.")] = 20,
    seed: SeedOption = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the live page of a simulated farm instead, until Ctrl-C.")
    ] = False,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to serve the page.")] = "127.0.0.1:8080",
) -> None:
    """Stream a simulated wind turbine, forecast it, and write a report; or, with --serve, watch a farm live.

    The wind is simulated by momostream itself; it is not the data set of the paper.
    """
    if serve:
        _serve_farm(address, seed or 0)
        return
    require_matplotlib("the demo")
    import_models()
    with explain_compiling():
        from momostream.cli.demo_feed import run_demo

    print(f"report: {run_demo(folder, rows, horizon, seed or 0)}")


def _serve_farm(address: str, seed: int) -> None:
    require_serve("--serve")
    import_models()
    with explain_compiling():
        from momostream.cli.demo_farm import open_farm
    from momostream.cli.watching import stoppable

    run, page = open_farm(address, seed)
    with page as found, stoppable(run):
        notify(f"page: {found}, until Ctrl-C")
        run.run()
