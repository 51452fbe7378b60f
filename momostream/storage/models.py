"""Models as files: rows, hyper-parameters and structure, checksummed, with nothing in them that could run.

The format of the file is that of `momostream.storage.container`. A loaded model continues exactly as the saved one
would have, on the same machine with the same versions; factors are rebuilt when they are needed. A drift detector is
saved by its class and parameters and starts afresh.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from river import base

from momostream.estimators.monitor import MOMoGPMonitor
from momostream.estimators.regressor import MOMoGPRegressor
from momostream.storage import container

if TYPE_CHECKING:
    from momostream.estimators.forecaster import MOMoGPForecaster

    SavedModel: TypeAlias = MOMoGPRegressor | MOMoGPForecaster | MOMoGPMonitor

__all__ = ["from_tree", "load", "save", "to_tree"]

REGRESSOR, FORECASTER, MONITOR = "regressor", "forecaster", "monitor"
KINDS = (REGRESSOR, FORECASTER, MONITOR)


# Errors that contents may raise which this version did not write.
MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def misfit(error: BaseException) -> str:
    """What does not fit, in words."""
    if isinstance(error, KeyError):
        return f"{error} is missing or unknown"
    return str(error) or type(error).__name__


def save(model: SavedModel, path: str | PathLike[str]) -> None:
    """Write a model to a file, all or nothing.

    Parameters
    ----------
    model
        The model.
    path
        File to create or replace.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from momostream import MOMoGPRegressor, load
    >>> model = MOMoGPRegressor(seed=0)
    >>> for t in range(20):
    ...     model.learn_one({"x": t % 5}, {"y": 2.0 * (t % 5)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.momo"
    ...     model.save(path)
    ...     again = load(path)
    >>> again.predict_one({"x": 3}) == model.predict_one({"x": 3})
    True
    """
    # Within the lock: rows that are learnt meanwhile must not be half in the file.
    with model._lock:
        kind, tree = to_tree(model)
        container.write(path, kind, tree)


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    A `momostream.MOMoGPRegressor`, a `momostream.MOMoGPForecaster`, a `momostream.MOMoGPMonitor` or a
    `momostream.sklearn.MOMoGPRegressor`.

    Raises
    ------
    momostream.storage.container.FileFormatError
        The file is not a momostream file, is cut off or altered, or comes from a newer version.
    """
    kind, tree = container.read(path)
    if kind not in {*KINDS, "table"}:
        raise container.FileFormatError(f"{path}: holds a {kind}, expected one of {', '.join(KINDS)}, table")
    try:
        if kind == "table":
            # Here and not above: most models are not of this kind, and scikit-learn takes 2 s to import.
            from momostream.storage.tables import table_from_tree

            return table_from_tree(tree)
        return from_tree(kind, tree)
    except MISFITS as error:
        raise container.FileFormatError(f"{path}: the contents do not fit this version ({misfit(error)})") from error


def to_tree(model: SavedModel) -> tuple[str, dict[str, Any]]:
    """The kind of a model, and its parameters and state as plain data that `momostream.storage.container` takes.

    Arrays may be the model's own: hold its lock, or let it learn nothing, until they have been used.
    """
    kind = MONITOR if isinstance(model, MOMoGPMonitor) else FORECASTER
    if isinstance(model, MOMoGPRegressor):
        kind = REGRESSOR
    return kind, {"parameters": _plain_parameters(model), "state": model._saved_state()}


def from_tree(kind: str, tree: Mapping[str, Any]) -> SavedModel:
    """The model that `to_tree` took apart."""
    parameters = dict(tree["parameters"])
    for name in ("bounds", "transforms"):
        if isinstance(parameters.get(name), list | tuple):
            parameters[name] = dict(parameters[name])
    model = _fresh(kind, parameters)
    model._restore(tree["state"])
    return model


def _fresh(kind: str, parameters: dict[str, Any]) -> SavedModel:
    if kind == REGRESSOR:
        detector = parameters.pop("drift_detector")
        return MOMoGPRegressor(**parameters, drift_detector=_detector(detector))
    if kind == MONITOR:
        return MOMoGPMonitor(**parameters)
    # Here and not above: river.time_series takes 2 s to import.
    from momostream.estimators.forecaster import MOMoGPForecaster

    return MOMoGPForecaster(**parameters)


@cache
def _parameters_of(kind: type[SavedModel]) -> tuple[str, ...]:
    """Names of the parameters of a kind of model."""
    return tuple(inspect.signature(kind).parameters)


def _plain_parameters(model: SavedModel) -> dict[str, Any]:
    parameters = {name: getattr(model, name) for name in _parameters_of(type(model))}
    for name in {"bounds", "transforms"} & parameters.keys():
        value = parameters[name]
        # Names of targets need not be strings.
        parameters[name] = [[key, item] for key, item in value.items()] if isinstance(value, dict) else value
    detector = getattr(model, "drift_detector", None)
    if detector is not None:
        # Here and not above: river.drift takes 2 s to import.
        from river import drift

        name = type(detector).__name__
        if getattr(drift, name, None) is not type(detector):
            raise TypeError(
                f"cannot save a drift detector of {type(detector)}: only those of river.drift can be loaded"
            )
        parameters["drift_detector"] = [name, dict(detector._get_params())]
    plain: dict[str, Any] = _plain(parameters)
    return plain


def _plain(value: Any) -> Any:
    """The same with Python's numbers in place of numpy's scalars, which are not saved."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _detector(state: Any) -> Any:
    """A fresh detector of `river.drift`; no other code is ever looked up by name."""
    if state is None:
        return None
    from river import drift

    name, parameters = state
    kind = getattr(drift, name, None)
    if not (isinstance(kind, type) and issubclass(kind, base.DriftDetector)):
        raise container.FileFormatError(f"unknown drift detector {name!r}: only those of river.drift can be loaded")
    return kind(**parameters)
