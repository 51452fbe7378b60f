"""The command line ``momostream``: a file for each command, from ``demo`` and ``run`` to ``migrate``.

Heavy packages are imported inside the commands, so that ``momostream --help`` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from momostream.cli.backup import backup
from momostream.cli.compile import compile_kernels
from momostream.cli.demo import demo
from momostream.cli.fit import fit
from momostream.cli.forecast import forecast
from momostream.cli.init import init
from momostream.cli.inspect import inspect
from momostream.cli.migrate import migrate
from momostream.cli.prune import prune
from momostream.cli.read import read
from momostream.cli.run import run
from momostream.cli.serve import serve

__all__ = ["app"]

app = typer.Typer(
    name="momostream",
    help="Forecast sensor feeds as their rows arrive, with honest uncertainty.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def momostream(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Forecast sensor feeds as their rows arrive, with honest uncertainty."""
    if version:
        from momostream import __version__

        print(f"momostream {__version__}")
        raise typer.Exit


for command in (demo, run, serve, init, fit, forecast, inspect, read, backup, prune, migrate):
    app.command()(command)
app.command("compile")(compile_kernels)
