"""Checks of what was read from a file or a store, before compiled code sees it, which checks no bounds.

A checksum shows that a file is what somebody wrote, not that it was written by this package: everything that is used as
an index, a count or a shape is compared with the arrays that it points into. Messages name the part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from momostream._checks import check_array, check_indices
from momostream.gp.factor import packed

__all__ = ["check_jobs", "check_leaf", "check_node", "check_rows", "check_stack", "check_table"]

# Numbers of rows stay below this, so that sums of two of them are whole numbers of 64 bits.
_MOST_ROWS = 1 << 62


def check_rows(state: dict[str, Any]) -> None:
    """Check the rows of a model: one width, and targets for each."""
    check_array("rows / X", state["X"], (None, None))
    check_array("rows / Y", state["Y"], (len(state["X"]), None))
    check_array("rows / fill", state["fill"], (state["X"].shape[1],))
    check_indices("rows / first", [state["first"]], 0, _MOST_ROWS)


def check_leaf(state: dict[str, Any], first: int, stop: int, n_targets: int, n_inputs: int, n_parameters: int) -> None:
    """Check a leaf against the rows from `first` to before `stop`, and the columns that it sees."""
    numbers, targets = state["numbers"], state["targets"]
    check_indices("leaf / targets", targets, 0, n_targets)
    if len(np.unique(targets)) < len(targets):
        raise ValueError("leaf / targets names a target twice")
    check_indices("leaf / numbers", numbers, first, stop)
    check_array("leaf / theta", state["theta"], (n_parameters,))
    if state["prior_theta"] is not None:
        check_array("leaf / prior_theta", state["prior_theta"], (n_parameters,))
    check_array("leaf / units", state["units"], (2, len(targets)))
    check_array("leaf / centre", state["centre"], (n_inputs,))
    check_indices("leaf / blocks", [end for block in state["blocks"] for end in block], 0, len(numbers) + 1)
    saved = state.get("factor")
    if saved is not None:
        check_indices("leaf / factor / n_pending", [saved["n_pending"]], 0, len(saved["S"]) + 1)
        n = len(numbers) + saved["n_pending"]
        check_array("leaf / factor / S", saved["S"], (n, n_inputs))
        check_array("leaf / factor / Z", saved["Z"], (n, len(targets)))
        # Either type: it is copied into an array of the leaf.
        is_short = getattr(saved["L"], "dtype", None) == np.float32
        check_array("leaf / factor / L", saved["L"], (packed(n),), np.float32 if is_short else np.float64)
        check_array("leaf / factor / squares", saved["squares"], (2, len(targets)))


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
    check_indices("tree / built", state["built"], 0, len(nodes))
    check_indices("tree / due", [k for _, k in state["due"]], 0, len(nodes))


def check_node(state: dict[str, Any], n_targets: list[int], n_columns: int) -> None:
    """Check an inner node against the numbers of targets of its children and the columns that its tree sees."""
    kind = state["kind"]
    if kind == "bundle":
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


def check_jobs(state: list[dict[str, Any]], n_nodes: list[int]) -> None:
    """Check the jobs of a model against the numbers of nodes of its trees."""
    for job in state:
        check_indices("jobs / tree", [job["tree"]], 0, len(n_nodes))
        check_indices("jobs / node", [job["node"]], 0, n_nodes[job["tree"]])
        if job["tuner"] is not None:
            X, theta = job["tuner"]["X"], job["tuner"]["theta"]
            check_array("jobs / tuner / X", X, (None, None))
            check_array("jobs / tuner / R", job["tuner"]["R"], (len(X), None))
            check_array("jobs / tuner / theta", theta, (None,))


def check_stack(state: dict[str, Any], n_targets: int, n_tails: int) -> None:
    """Check the weights of the experts: as many targets as the rows have, and tails that there are."""
    mixing = state["mixing"]
    check_array("stack / mixing", mixing, (None, None, n_targets))
    tails = mixing[2]
    # -1 marks an expert whose deviation is taken as it is.
    if not np.isin(tails, np.arange(-1, n_tails)).all():
        raise ValueError(f"stack / mixing has a tail beyond the {n_tails} that there are")
