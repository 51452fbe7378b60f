"""Tables on the terminal: what a saved model has learnt, and what a store contains."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from momostream.estimators.regressor import MOMoGPRegressor
from momostream.runs.scores import Track
from momostream.show.outline import Box, counted, has_learnt, outline
from momostream.storage.store import LINES, Position, Store

__all__ = ["print_model", "print_store"]

# Most columns and most nodes of a circuit that can be read on a terminal.
MAX_COLUMNS, MAX_NODES = 12, 40
# Most keys of a store that are listed.
MAX_KEYS = 20
# Names of the lines in a store's tables.
WORDS = ("prediction", "alarm", "rejected row")


def print_model(
    path: str | PathLike[str], model: Any, positions: Sequence[Position] = (), console: Console | None = None
) -> None:
    """Print a model, and the positions in the feeds that it has learnt."""
    console = console or Console()
    console.print(f"[bold]{path}[/bold]", highlight=False)
    console.print(model.describe(), highlight=False, markup=False)
    if has_learnt(model):
        console.print(_branch(outline(model, max_nodes=MAX_NODES)))
    changed = _changed_parameters(model)
    if changed:
        console.print(_table("parameters that differ from their defaults", pd.DataFrame({"value": changed})))
    if isinstance(model, MOMoGPRegressor):
        console.print(_table("weights of the experts, by target", pd.DataFrame(model.expert_weights).T))
        for name, lengths in _lengthscales(model).items():
            console.print(_table(f"{name}: lengthscales and noise of its Gaussian processes", lengths))
        console.print(_table("relevance of the inputs", pd.DataFrame({"share": model.relevance})))
    else:
        console.print(_table("weights of the experts, by series: mean over the steps", model.weights))
    for position in positions:
        _print_position(position, console)


def print_store(path: str | PathLike[str], store: Store, console: Console | None = None) -> None:
    """Print the contents of a store: models by key, positions in feeds, how many predictions, alarms, rejected rows."""
    console = console or Console()
    console.print(f"[bold]{path}[/bold]", highlight=False)
    rows = store.rows()
    shown = pd.DataFrame({"rows": rows}, dtype=np.int64).head(MAX_KEYS)
    console.print(f"{counted(len(rows), 'model')}, {sum(rows.values()):,} rows", highlight=False)
    console.print(_table("rows learnt, by key", shown))
    if len(rows) > len(shown):
        console.print(f"and {len(rows) - len(shown):,} more keys", highlight=False)
    for position in store.sources():
        _print_position(position, console)
    counts = (counted(store.count(table), what) for table, what in zip(LINES, WORDS, strict=True))
    console.print(", ".join(counts), highlight=False)


def _branch(box: Box, tree: Tree | None = None) -> Tree:
    """A circuit from the top down, one line for each node: the edge to it, then the node."""
    words = ": ".join(" ".join(text.replace("_\n", "_").split()) for text in (box.edge, box.text) if text)
    # Figures read a pair of dollar signs as a formula, terminals do not.
    words = words.replace(r"\$", "$")
    below = Tree(Text(words or "circuit")) if tree is None else tree.add(Text(words))
    for child in box.children:
        _branch(child, below)
    return below


def _print_position(position: Position, console: Console) -> None:
    learnt = f"{position.more.get('n_rows', position.number):,} rows learnt, {position.n_bad:,} bad"
    console.print(f"{position.name}: read up to row {position.number:,}: {learnt}", highlight=False, markup=False)
    state = position.more.get("track")
    track = None if state is None else Track.from_state({**state, "waiting": []})
    if track is not None and track.n_scored:
        console.print(_table("scores so far (naive: RMSE of the last value)", track.summary))


def _changed_parameters(model: Any) -> dict[str, str]:
    defaults = {name: parameter.default for name, parameter in signature(type(model)).parameters.items()}
    return {name: str(value) for name, value in model._get_params().items() if value != defaults[name]}


def _lengthscales(model: MOMoGPRegressor) -> dict[str, pd.DataFrame]:
    """Rows, lengthscales and noise of the Gaussian processes of each expert, the largest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for process in model.hyperparameters:
        line = {"targets": ", ".join(map(str, process["targets"])), "rows": process["rows"], "noise": process["noise"]}
        found.setdefault(process["expert"], []).append(line | dict(process["lengthscales"]))
    return {
        name: pd.DataFrame(lines).sort_values("rows", ascending=False, ignore_index=True).head(MAX_COLUMNS)
        for name, lines in found.items()
    }


def _table(title: str, frame: pd.DataFrame) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for name in frame.columns[:MAX_COLUMNS]:
        table.add_column(str(name), justify="right")
    for label, *cells in frame.iloc[:, :MAX_COLUMNS].itertuples(name=None):
        table.add_row(str(label), *map(_cell, cells))
    if len(frame.columns) > MAX_COLUMNS:
        table.caption = f"and {len(frame.columns) - MAX_COLUMNS} more columns"
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value)
