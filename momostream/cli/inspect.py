"""``momostream inspect``: show a saved model, or the contents of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.messages import import_models, notify, require_matplotlib
from momostream.cli.models import is_store, keys_of, load_models, read_only
from momostream.cli.options import ModelArgument, ModelKey

__all__ = ["inspect"]


@command
def inspect(
    model: ModelArgument,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot the circuit as PNG, SVG or PDF.")] = None,
    key: ModelKey = None,
) -> None:
    """Show what a saved model has learnt (circuit, weights, lengthscales, sizes), or what a store contains."""
    import_models()
    from momostream.runs.run import ONLY
    from momostream.show.inspection import print_model, print_store

    if plot is not None:
        require_matplotlib("--plot")
    if is_store(model) and key is None and keys_of(model) != [ONLY]:
        if plot is not None:
            raise ValueError(f"{model}: contains several models: choose one with --key to plot it")
        with read_only(model) as store:
            print_store(model, store)
        return
    ((_, loaded, _),) = load_models(model, key)
    positions = []
    if is_store(model):
        with read_only(model) as store:
            positions = store.sources()
    print_model(model, loaded, positions)
    if plot is not None:
        from momostream.show import plots

        plots.plot_circuit(loaded).savefig(plot, dpi=150)
        notify(f"plot: {plot}")
