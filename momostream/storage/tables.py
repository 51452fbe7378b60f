"""Fitted table estimators as files, in the container of all models, without pickle.

A file lists the objects of a model: the name of a class and its attributes. Only classes of the table model are written
and read, by the list below; an object that two others share is written once. Factors are left out and rebuilt.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields, is_dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from momostream._checks import check_indices, check_state, count, flag, instance_of, optional
from momostream.batch.experts import CircuitExpert, ExpertSpec, FactorBudget, LinearExpert, TuningRules
from momostream.batch.linear import LinearRegression
from momostream.batch.model import Model
from momostream.batch.nodes import Circuit, Node
from momostream.batch.region import Region
from momostream.batch.restoring import check_table_model
from momostream.batch.settings import Settings
from momostream.batch.structure import SplitRules
from momostream.batch.warp import Warp
from momostream.batch.weights import Copula, Tail
from momostream.gp.covariance import Covariance, Prior
from momostream.storage import container

if TYPE_CHECKING:
    from momostream.estimators.table import MOMoGPRegressor

__all__ = ["TABLE", "save_table", "table_from_tree", "table_to_tree"]

TABLE = "table"

CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Model, Settings, ExpertSpec, TuningRules, SplitRules, FactorBudget, CircuitExpert, LinearExpert,
        LinearRegression, Region, Circuit, Node, Warp, Tail, Copula, Covariance, Prior,
    )
}  # fmt: skip
# Attributes that can be computed again, and how they begin.
REBUILT: dict[str, dict[str, Any]] = {
    "Region": {"_factor": None, "_moments": None, "_gaps": None, "_weights": None},
    "LinearRegression": {"_solution": None},
    "FactorBudget": {"_held": 0, "_bytes": None},
}
FITTED = ("model_", "_one_target", "target_names_", "n_features_in_")


def save_table(estimator: MOMoGPRegressor, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a file, all or nothing."""
    container.write(path, TABLE, table_to_tree(estimator))


def table_to_tree(estimator: MOMoGPRegressor) -> dict[str, Any]:
    """A fitted estimator as plain data."""
    parameters = estimator.get_params(deep=False)
    if not isinstance(parameters["random_state"], int | np.integer | None):
        raise TypeError("random_state is a generator, which cannot be saved: use a whole number or None")
    writer = _ObjectWriter()
    fitted = {name: writer.plain(getattr(estimator, name)) for name in FITTED}
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "parameters": {name: writer.plain(value) for name, value in parameters.items()},
        "fitted": fitted,
        "names": None if names is None else [str(name) for name in names],
        "objects": writer.objects,
    }


def table_from_tree(tree: dict[str, Any]) -> MOMoGPRegressor:
    """The estimator that `table_to_tree` took apart."""
    from momostream.estimators.table import MOMoGPRegressor

    reader = _ObjectReader(tree["objects"])
    estimator = MOMoGPRegressor(**{name: reader.value(value) for name, value in tree["parameters"].items()})
    unknown = tree["fitted"].keys() - set(FITTED)
    if unknown:
        raise ValueError(f"unknown attributes {sorted(unknown)}")
    fitted = {name: reader.value(tree["fitted"][name]) for name in FITTED}
    table = {"n_features_in_": count(), "_one_target": flag(), "target_names_": optional(instance_of(tuple, "a tuple"))}
    check_state("fitted", fitted, table)
    check_table_model(fitted["model_"], fitted["n_features_in_"])
    for name, value in fitted.items():
        setattr(estimator, name, value)
    if tree["names"] is not None:
        check_indices("names", [len(tree["names"])], estimator.n_features_in_, estimator.n_features_in_ + 1)
        estimator.feature_names_in_ = np.array(tree["names"], dtype=object)
    return estimator


class _ObjectWriter:
    """Values as plain data; objects are numbered as they are met."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return self.plain(value.item())
        if isinstance(value, np.ndarray):
            return ["array", value]
        if isinstance(value, tuple | list):
            return [type(value).__name__, [self.plain(item) for item in value]]
        if isinstance(value, dict):
            return ["dict", [[self.plain(key), self.plain(item)] for key, item in value.items()]]
        if isinstance(value, np.random.Generator):
            return ["generator", self.plain(value.bit_generator.state)]
        return ["object", self._number(value)]

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            kind = type(value).__name__
            if CLASSES.get(kind) is not type(value):
                raise TypeError(f"cannot save a {type(value)}")
            self._numbers[id(value)] = number = len(self.objects)
            self.objects.append(None)
            left_out = REBUILT.get(kind, {})
            kept = {name: self.plain(item) for name, item in vars(value).items() if name not in left_out}
            self.objects[number] = [kind, kept]
        return self._numbers[id(value)]


def _constructed(kind: Any) -> list[str]:
    return [field.name for field in fields(kind) if field.init]


class _ObjectReader:
    """Values from plain data; each object is made once."""

    def __init__(self, objects: list[Any]) -> None:
        self._objects = objects
        self._made: dict[int, Any] = {}

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            return plain
        tag, content = plain
        if tag == "array":
            return content
        if tag in ("tuple", "list"):
            items = [self.value(item) for item in content]
            return tuple(items) if tag == "tuple" else items
        if tag == "dict":
            return {self.value(key): self.value(item) for key, item in content}
        if tag == "generator":
            rng = np.random.default_rng()
            rng.bit_generator.state = self.value(content)
            return rng
        if tag == "object":
            return self._object(content)
        raise ValueError(f"unknown kind of value {tag!r}")

    def _object(self, number: int) -> Any:
        if number not in self._made:
            name, attributes = self._objects[number]
            if name not in CLASSES:
                raise ValueError(f"objects / {number} is of an unknown class {name!r}")
            kind = CLASSES[name]
            if is_dataclass(kind):
                # By their constructors, which check what they are given; other attributes follow from these.
                given = {key: self.value(attributes[key]) for key in _constructed(kind)}
                self._made[number] = kind(**given)
                return self._made[number]
            made: Any = object.__new__(kind)
            self._made[number] = made
            rebuilt = dict(REBUILT.get(name, {}))
            if name == "FactorBudget":
                rebuilt["_bytes"] = OrderedDict()
            # Not by assignment: some of them are frozen.
            made.__dict__.update({key: self.value(item) for key, item in attributes.items()} | rebuilt)
        return self._made[number]
