"""Checks of the model of a table in a file, before compiled code sees it; see `momostream._checks`.

Of each class a table lists its attributes, and everything that points into something else is compared with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from momostream._checks import (
    Shape,
    Table,
    check_array,
    check_indices,
    check_state,
    count,
    flag,
    instance_of,
    number,
    optional,
)
from momostream.batch.experts import CircuitExpert, ExpertSpec, FactorBudget, LinearExpert
from momostream.batch.linear import LinearRegression
from momostream.batch.model import Model
from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit, Node
from momostream.batch.region import Region
from momostream.batch.settings import Settings
from momostream.batch.structure import SplitRules
from momostream.batch.warp import Warp
from momostream.batch.weights import Copula, Tail
from momostream.gp.covariance import KERNELS, Covariance

__all__ = ["check_table_model"]

_D, _P, _WIDTH, _OWN = "inputs", "targets", "width", "own"
_LIST = instance_of(list, "a list")


def _object(kind: type) -> Any:
    return instance_of(kind, f"an object of {kind.__name__}")


TABLES: dict[type, Table] = {
    Model: {
        "settings": _object(Settings), "experts": _LIST, "log_weights": instance_of(np.ndarray, "an array"),
        "copula": optional(_object(Copula)), "input_means": Shape((_D,)), "_input_counts": Shape((_D,)),
        "n_rows": count(), "n_targets": count(start=1), "_rng": instance_of(np.random.Generator, "a generator"),
    },
    CircuitExpert: {
        "name": instance_of(str, "a name"), "spec": _object(ExpertSpec), "plan": _object(SplitRules),
        "split_by": instance_of(str, "a name"), "covariance": _object(Covariance), "gaussian": flag(),
        "discount": number(), "budget": _object(FactorBudget), "circuit": _object(Circuit), "regions": _LIST,
        "rows": _LIST, "outputs": _LIST, "warp": optional(_object(Warp)), "tail": optional(_object(Tail)),
        "base": optional(_object(LinearRegression)), "given": flag(), "_standard": instance_of(tuple, "a tuple"),
        "_floor": Shape((_P,)), "_starts": _LIST,
    },
    LinearExpert: {
        "name": instance_of(str, "a name"), "regression": _object(LinearRegression), "tail": optional(_object(Tail)),
    },
    LinearRegression: {
        "centre": Shape((_D,)), "std": Shape((_D,)), "offset": Shape((_P,)), "scale": Shape((_P,)), "ridge": number(),
        "n_rows": count(), "gram": Shape((_P, _WIDTH, _WIDTH)), "cross": Shape((_WIDTH, _P)),
        "squares": Shape((_P, _P)), "pairs": Shape((_P, _P)), "whole_gram": Shape((_WIDTH, _WIDTH)),
        "whole_cross": Shape((_WIDTH, _P)), "whole_squares": Shape((_P, _P)), "n_whole": count(),
    },
    Region: {
        "floor": Shape((_OWN,)), "covariance": _object(Covariance), "discount": number(), "gaussian": flag(),
        "n_rows": count(), "_X": Shape(("room", _D)), "_Y": Shape(("room", _OWN)), "_targets": Shape(("room", _OWN)),
        "theta": Shape(("parameters",)), "offset": Shape((_OWN,)), "scale": Shape((_OWN,)), "centre": Shape((_D,)),
        "n_blocked": count(), "noise": number(),
    },
    FactorBudget: {"limit": optional(count())},
    SplitRules: {
        "max_points": count(start=1), "n_components": count(start=1), "n_cells": count(start=1),
        "n_groups": count(start=1), "mixture_depth": optional(count()), "group_by": instance_of(str, "a name"),
        "single_outputs": flag(),
    },
    Circuit: {"nodes": _LIST, "root": count()},
    Tail: {"dof": Shape((_P,)), "factor": Shape((_P,))},
    Copula: {"dof": number(), "blend": number(), "strength": number(), "residual": Shape((_P, _P))},
}  # fmt: skip


def check_table_model(model: Any, n_inputs: int) -> None:
    """Check a model of so many inputs; a ValueError names the part."""
    if not isinstance(model, Model):
        raise ValueError(f"model is a {type(model).__name__}")
    n_targets = vars(model).get("n_targets")
    sizes = {_D: n_inputs, _P: n_targets if isinstance(n_targets, int) else 0, _WIDTH: 1 + n_inputs}
    _check("model", model, sizes)
    names = tuple(getattr(expert, "name", None) for expert in model.experts)
    if names != model.settings.experts:
        raise ValueError(f"model / experts are {names}, expected {model.settings.experts}")
    per_target = model.log_weights.ndim == 2
    check_array("model / log_weights", model.log_weights, (len(names), sizes[_P]) if per_target else (len(names),))
    if model.copula is not None:
        _check("copula", model.copula, sizes)
    for expert in model.experts:
        _check("expert", expert, sizes)
        if expert.tail is not None:
            _check("tail", expert.tail, sizes)
        if isinstance(expert, LinearExpert):
            _check("linear", expert.regression, sizes)
        else:
            _check_circuit_expert(expert, sizes)


def _check(part: str, thing: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """Check the attributes of an object by the table of its class."""
    table = TABLES.get(type(thing))
    if table is None:
        raise ValueError(f"{part} is a {type(thing).__name__}")
    return check_state(part, vars(thing), table, sizes)


def _check_circuit_expert(expert: CircuitExpert, sizes: Mapping[str, int]) -> None:
    n_parameters = _n_parameters(expert.covariance, sizes[_D])
    check_indices("expert / _standard", [len(expert._standard)], 2, 3)
    for array in expert._standard:
        check_array("expert / _standard", array, (sizes[_P],))
    check_indices("expert / _starts", [len(expert._starts)], sizes[_P], sizes[_P] + 1)
    for theta in expert._starts:
        check_array("expert / _starts", theta, (n_parameters,))
    if expert.base is not None:
        _check("linear", expert.base, sizes)
    if expert.warp is not None:
        _check_warp(expert.warp, sizes[_D])
    _check("budget", expert.budget, sizes)
    _check("plan", expert.plan, sizes)
    _check("circuit", expert.circuit, sizes)
    if not len(expert.regions) == len(expert.rows) == len(expert.outputs):
        raise ValueError("expert / regions, rows and outputs differ in number")
    for region, rows, outputs in zip(expert.regions, expert.rows, expert.outputs, strict=True):
        check_indices("expert / rows", rows, 0, 1 << 62)
        check_indices("expert / outputs", outputs, 0, sizes[_P])
        found = _check("region", region, {**sizes, _OWN: len(outputs), "parameters": n_parameters})
        check_indices("region / n_rows", [region.n_rows], 0, found["room"] + 1)
        check_indices("region / n_blocked", [region.n_blocked], 0, region.n_rows + 1)
        if region.covariance != expert.covariance:
            raise ValueError(f"region / covariance is {region.covariance}, expected {expert.covariance}")
    _check_nodes(expert, sizes)


def _n_parameters(covariance: Covariance, n_inputs: int) -> int:
    check_state("covariance", vars(covariance), {"name": instance_of(str, "a name"), "linear": flag()})
    if covariance.name not in KERNELS:
        raise ValueError(f"covariance / name is {covariance.name!r}")
    return covariance.n_parameters(n_inputs)


def _check_warp(warp: Warp, n_inputs: int) -> None:
    check_indices("warp / knots", [len(warp.knots), len(warp.scores)], n_inputs, n_inputs + 1)
    for knots, scores in zip(warp.knots, warp.scores, strict=True):
        check_array("warp / knots", knots, (None,))
        check_array("warp / scores", scores, (len(knots),))
        if not len(knots) or not (np.diff(knots) > 0.0).all():
            raise ValueError("warp / knots do not increase")


def _check_nodes(expert: CircuitExpert, sizes: Mapping[str, int]) -> None:
    """Check that the nodes are a tree whose parts own the outputs of their parents, above regions that there are."""
    nodes = expert.circuit.nodes
    check_indices("circuit / root", [expert.circuit.root], 0, len(nodes))
    for node in nodes:
        if not isinstance(node, Node):
            raise ValueError(f"circuit / nodes has a {type(node).__name__}")
        check_indices("node / kind", [node.kind], 0, 4)
        check_indices("node / children", node.children, 0, len(nodes))
        check_indices("node / outputs", node.outputs, 0, sizes[_P])
        if node.kind == GATE:
            check_indices("node / column", [node.column], 0, sizes[_D])
            check_array("node / cuts", node.cuts, (len(node.children) - 1,))
        if node.kind == SUM:
            weights = node.log_weights
            own = (len(node.outputs),) if getattr(weights, "ndim", 1) == 2 else ()
            check_array("node / log_weights", weights, (len(node.children), *own))
        _check_outputs(node, expert)
    expert.circuit.check(sizes[_D], sizes[_P])


def _check_outputs(node: Node, expert: CircuitExpert) -> None:
    """Check that a node has the outputs of its region, of each child, or of all its children together."""
    if node.kind == REGION:
        check_indices("node / region", [node.region], 0, len(expert.regions))
        parts = [expert.outputs[node.region]]
    elif not node.children:
        raise ValueError("node / children is empty")
    else:
        parts = [expert.circuit.nodes[child].outputs for child in node.children]
    parts = [np.concatenate(parts)] if node.kind == OUTPUTS else parts
    if any(not np.array_equal(np.sort(part), node.outputs) for part in parts):
        raise ValueError("node / outputs are not those of its children, or of its region")
