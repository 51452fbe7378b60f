"""Checks of the row model in a file or a store, before compiled code sees it; see `momostream._checks`."""

from __future__ import annotations

from typing import Any

import numpy as np

from momostream._checks import (
    MOST_ROWS,
    Shape,
    Table,
    check_array,
    check_finite,
    check_indices,
    check_state,
    check_whole,
    count,
    flag,
    like,
    number,
    one_of,
)
from momostream.gp.factor import packed
from momostream.kernels.lags import AROUND, MASS, SEASON, SEEN

__all__ = [
    "check_circuits",
    "check_jobs",
    "check_lags",
    "check_leaf",
    "check_node",
    "check_readings",
    "check_rows",
    "check_stack",
    "check_table",
]

ROWS: Table = {
    "fill": Shape(("columns",)), "X": Shape(("rows", "columns")), "Y": Shape(("rows", "targets")), "first": count(),
}  # fmt: skip
LEAF: Table = {
    "targets": Shape(("own",), np.int64), "numbers": Shape(("rows",), np.int64), "theta": Shape(("parameters",)),
    "units": Shape((2, "own")), "centre": Shape(("inputs",)), "has_units": flag(), "is_untuned": flag(),
    "touched": count(), "n_seen": count(), "next_tuning": number(),
}  # fmt: skip
FACTOR: Table = {
    "n_updates": count(), "n_pending": count(), "S": Shape(("all", "inputs")), "Z": Shape(("all", "own")),
    "squares": Shape((2, "own")),
}  # fmt: skip
TUNER: Table = {
    "X": Shape(("rows", "inputs")), "R": Shape(("rows", None)), "theta": Shape(("parameters",)), "n_left": count(),
    "value": number(), "step": number(), "gradient": Shape(("parameters",)), "direction": Shape(("parameters",)),
}  # fmt: skip
CIRCUITS: Table = {"n_learnt": count(), "n_gradients": number()}
READINGS: Table = {"n_rows": count(), "counts": Shape((3, "columns")), "newest": Shape((3, "columns"))}


def check_circuits(state: dict[str, Any], n_columns: int, n_targets: int) -> None:
    """Check the rows of circuits, which must have these columns and targets, before any tree is restored."""
    check_state("circuits", state, CIRCUITS)
    check_rows(state["rows"], n_columns, n_targets)


def check_rows(state: dict[str, Any], n_columns: int | None = None, n_targets: int | None = None) -> None:
    """Check the rows of a model: one width, and targets for each."""
    sizes = {"columns": n_columns, "targets": n_targets}
    check_state("rows", state, ROWS, {name: size for name, size in sizes.items() if size is not None})


def check_leaf(state: dict[str, Any], first: int, stop: int, n_targets: int, n_inputs: int, n_parameters: int) -> None:
    """Check a leaf against the rows from `first` to before `stop`, and the columns that it sees."""
    sizes = check_state("leaf", state, LEAF, {"parameters": n_parameters, "inputs": n_inputs})
    check_indices("leaf / targets", state["targets"], 0, n_targets)
    if len(np.unique(state["targets"])) < sizes["own"]:
        raise ValueError("leaf / targets names a target twice")
    check_indices("leaf / numbers", state["numbers"], first, stop)
    if state["prior_theta"] is not None:
        check_array("leaf / prior_theta", state["prior_theta"], (n_parameters,))
    ends = [end for start, stop in state["blocks"] for end in (start, stop)]
    check_indices("leaf / blocks", ends, 0, MOST_ROWS)
    if sorted(ends) != ends:
        raise ValueError("leaf / blocks overlap")
    saved = state.get("factor")
    if saved is not None:
        n = sizes["rows"] + (saved["n_pending"] if type(saved["n_pending"]) is int else 0)
        check_state("leaf / factor", saved, FACTOR, sizes | {"all": n})
        if len(saved["gaps"]):
            check_array("leaf / factor / gaps", saved["gaps"], (n, sizes["own"]))
        # Either type: it is copied into an array of the leaf.
        is_short = getattr(saved["L"], "dtype", None) == np.float32
        check_array("leaf / factor / L", saved["L"], (packed(n),), np.float32 if is_short else np.float64)


def check_table(state: dict[str, Any]) -> None:
    """Check which nodes of a tree are children of which: each but the first has one parent, which comes before it."""
    nodes = state["nodes"]
    if not nodes:
        raise ValueError("tree / nodes is empty")
    children = []
    for k, node in enumerate(nodes):
        below = node.get("children", [])
        check_indices(f"tree / nodes / {k} / children", below, k + 1, len(nodes))
        if node["kind"] != "leaf" and not below:
            raise ValueError(f"tree / nodes / {k} / children is empty")
        children += below
    if sorted(children) != list(range(1, len(nodes))):
        raise ValueError("tree / nodes: every node but the first must be the child of one other")
    check_state("tree", state, {"touch": count()})
    check_indices("tree / built", state["built"], 0, len(nodes))
    check_indices("tree / due", [k for _, k in state["due"]], 0, len(nodes))
    for kind, k in state["due"]:
        may_split = kind == "split" and nodes[k]["kind"] == "bundle"
        if not may_split and (kind not in ("split", "tune") or nodes[k]["kind"] != "leaf"):
            raise ValueError(f"tree / due: a {nodes[k]['kind']} cannot wait for {kind!r}")


def check_node(state: dict[str, Any], n_targets: list[int], n_columns: int) -> None:
    """Check an inner node against the numbers of targets of its children and the columns that its tree sees."""
    kind = state["kind"]
    if kind == "bundle":
        check_state("bundle", state, {"is_region": flag()})
        positions = state["places"]
        for p in positions:
            check_indices("bundle / places", p, 0, sum(n_targets))
        sizes = [len(p) for p in positions]
        if sizes != n_targets or len(np.unique(np.concatenate(positions))) < sum(sizes):
            raise ValueError(f"bundle / places has {sizes} different targets, its children have {n_targets}")
        return
    if kind not in ("gate", "sum"):
        raise ValueError(f"tree / nodes has a node of the kind {kind!r}")
    if len(set(n_targets)) > 1:
        raise ValueError(f"{kind} / children have {n_targets} targets, expected as many each")
    if kind == "gate":
        check_indices("gate / column", [state["column"]], 0, n_columns)
        check_array("gate / cuts", state["cuts"], (len(n_targets) - 1,))
    else:
        check_array("sum / log_weights", state["log_weights"], (len(n_targets), n_targets[0]))


def check_jobs(state: list[dict[str, Any]], n_nodes: list[int], sizes: list[tuple[int, int]]) -> None:
    """Check the jobs of a model against the numbers of nodes, inputs and hyper-parameters of its trees."""
    for job in state:
        check_state(
            "jobs", job, {"kind": one_of("tune", "split", "build"), "tree": count(len(n_nodes)), "stays": flag()}
        )
        check_indices("jobs / node", [job["node"]], 0, n_nodes[job["tree"]])
        tuner = job["tuner"]
        if tuner is not None:
            n_inputs, n_parameters = sizes[job["tree"]]
            check_state("jobs / tuner", tuner, TUNER, {"inputs": n_inputs, "parameters": n_parameters})
            if len(tuner["prior"]) != 4 or len(tuner["moves"]) != len(tuner["turns"]):
                raise ValueError("jobs / tuner / prior, moves or turns has another length than written")
            for array in (*tuner["prior"], *tuner["moves"], *tuner["turns"]):
                check_array("jobs / tuner / prior, moves or turns", array, (n_parameters,))


def check_stack(state: dict[str, Any], fresh: dict[str, Any], n_tails: int) -> None:
    """Check the weights of the experts against a fresh stack; those of earlier versions are shorter along some axes."""
    for name, array in fresh.items():
        if isinstance(array, np.ndarray) and name in state:
            shape = getattr(state[name], "shape", ())
            fits = len(shape) == array.ndim
            check_array(f"stack / {name}", state[name], tuple(map(min, shape, array.shape)) if fits else array.shape)
    check_array("stack / mixing", state["mixing"], (None, None, fresh["mixing"].shape[2]))
    check_state("stack", state, like({name: fresh[name] for name in ("R", "factors", "log_dets", "n_rows")}))
    for name in ("moments", "pairs"):
        check_finite(f"stack / {name}", state[name])
    # Correlations are drawn towards independence until they have a factor, which others would never have.
    if (np.diagonal(state["moments"], axis1=1, axis2=2) < 0.0).any() or (state["pairs"] < 0.0).any():
        raise ValueError("stack / moments or pairs is negative")
    # -1 marks an expert whose deviation is taken as it is.
    check_whole("stack / mixing", state["mixing"][2], -1, n_tails)


def check_lags(part: str, state: dict[str, Any], fresh: dict[str, Any], targets: str, batch: int) -> None:
    """Check regressions on rows before against fresh ones of the same columns; rows that wait fit into a batch."""
    waiting = {"features": ("waiting", fresh["features"].shape[1]), targets: ("waiting", fresh[targets].shape[1])}
    table = like(fresh, **{name: Shape(lengths) for name, lengths in waiting.items()})
    sizes = check_state(part, state, table)
    check_indices(f"{part} / features", [sizes["waiting"]], 0, batch)
    if "clock" in fresh:
        clock = state["clock"]
        check_whole(f"{part} / clock", clock[SEASON], 0, len(state["echo"]) - AROUND)
        if clock[SEASON] and clock[SEASON] < AROUND:
            raise ValueError(f"{part} / clock has a season of {clock[SEASON]} rows")
        check_whole(f"{part} / clock", np.delete(clock, [SEASON, MASS]), 0, 1 << 53)
        check_whole(f"{part} / clock", clock[SEEN], 0, 1 << 53)
        if not 0.0 <= clock[MASS] < float(1 << 53):
            raise ValueError(f"{part} / clock has {clock[MASS]} rows")


def check_readings(part: str, state: dict[str, Any], n_columns: int, n_state: int, reasons: list[int]) -> None:
    """Check what columns have shown, and why readings were set aside."""
    check_state(part, state, {**READINGS, "states": Shape((n_columns, n_state))}, {"columns": n_columns})
    check_whole(f"{part} / counts", state["counts"], 0, 1 << 53)
    set_aside = state["counts"][: len(reasons)].any(axis=0)
    check_whole(f"{part} / newest", state["newest"][0, set_aside], 0, 1 << 53)
    if not np.isin(state["newest"][2, set_aside], reasons).all():
        raise ValueError(f"{part} / newest has an unknown reason")
