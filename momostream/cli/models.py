"""Make the models of a run, resume those of a store, and load saved ones."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from momostream import estimators
from momostream.cli.options import ModelSettings
from momostream.distributions.limit_texts import read_limits

if TYPE_CHECKING:
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan
    from momostream.storage.store import Store

__all__ = [
    "SavedModel",
    "is_store",
    "keys_of",
    "load_models",
    "must_agree",
    "open_fleet",
    "parse_settings",
    "read_only",
]


def parse_settings(settings: ModelSettings, horizon: int | str | None) -> dict[str, Any]:
    """Parameters of the model by name, as Python literals, or else as text."""
    parsed: dict[str, Any] = {} if settings.seed is None else {"seed": settings.seed}
    if settings.bounds:
        try:
            parsed["bounds"] = read_limits(settings.bounds)
        except ValueError as error:
            raise ValueError(f"--bounds {error}") from None
    if not settings.set:
        return parsed
    kind, known = _parameters_of_model(horizon)
    for setting in settings.set:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting}: expected NAME=VALUE")
        if name not in known:
            hint = _did_you_mean(name, known) or f"; choose from {', '.join(known)}"
            raise ValueError(f"--set {setting}: {kind} has no parameter {name!r}{hint}")
        if name in parsed and name == "bounds":
            raise ValueError(f"--set {setting}: use either --bounds or --set bounds=, not both")
        try:
            parsed[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            parsed[name] = text
    return parsed


def _parameters_of_model(horizon: int | str | None) -> tuple[str, list[str]]:
    """The class of the model and the names of its parameters.

    They are read from its source: an import would compile kernels first, and a wrong name would wait for that.
    """
    file, kind = ("regressor", "MOMoGPRegressor") if horizon is None else ("forecaster", "MOMoGPForecaster")
    tree = ast.parse((Path(estimators.__file__).parent / f"{file}.py").read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    init = next(node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return kind, [argument.arg for argument in (*init.args.args[1:], *init.args.kwonlyargs)]


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f": did you mean {near[0]!r}?" if near else ""


@contextmanager
def open_fleet(
    plan: Plan,
    settings: dict[str, Any],
    store: Path | None = None,
    memory: int = 1 << 30,
    warm_start: bool = False,
    share: tuple[int, int] | None = None,
) -> Iterator[Fleet]:
    """Open the models of a plan, in a store if there is one: it remembers the settings that models were made with."""
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import make_model
    from momostream.storage.store import Store

    if store is None:
        with Fleet(make_model(plan, settings), memory_budget=memory, warm_start=warm_start) as fleet:
            yield fleet
        return
    with Store(store) as opened:
        about = about_of(opened)
        # Under "kin" in files: they were written before the option was called --warm-start.
        now: dict[str, Any] = {"plan": dict(vars(plan)), "settings": settings, "share": share, "kin": warm_start}
        if about:
            before, asked = ({**said, **said["plan"], **said["settings"]} for said in (about, now))
            left_out = {"plan", "settings"} | ({"targets", "inputs"} if may_change_columns(before, asked) else set())
            must_agree(before, {name: value for name, value in asked.items() if name not in left_out})
        settings = {"seed": 0} | about.get("settings", {}) | settings
        with Fleet(make_model(plan, settings), store=opened, memory_budget=memory, warm_start=warm_start) as fleet:
            fleet.about = now | {"settings": settings}
            yield fleet


def about_of(store: Store) -> dict[str, Any]:
    """What a store knows about the run that wrote it; empty before the first run."""
    from momostream.storage.restoring import check_about
    from momostream.storage.store import StoreError

    try:
        return check_about(store.notes.get("about") or {})
    except ValueError as error:
        raise StoreError(f"{store.path}: {error}") from error


def may_change_columns(before: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether models can continue with other targets and inputs: sensors were added or dropped, and none changes sides.

    Examples
    --------
    >>> before = {"targets": ("power", "wind"), "inputs": ()}
    >>> may_change_columns(before, {"targets": ("power", "wind", "temperature"), "inputs": ()})
    True
    >>> may_change_columns(before, {"targets": ("power",), "inputs": ("wind",)})
    False
    """
    targets, inputs = set(asked["targets"]), set(asked["inputs"])
    stays = not inputs & set(before["targets"]) and not targets & set(before["inputs"])
    return stays and bool(targets & set(before["targets"]))


def must_agree(before: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise an error if an option differs from that of the last run.

    Examples
    --------
    >>> must_agree({"horizon": 6, "level": 0.9}, {"horizon": 12})
    Traceback (most recent call last):
    ...
    ValueError: cannot resume: horizon was 6, now it is 12: repeat the earlier value, or use another store
    """
    for name, value in asked.items():
        if name in before and value == before[name]:
            continue
        option = "warm-start" if name == "kin" else name
        was = repr(before[name]) if name in before else "not set"
        raise ValueError(
            f"cannot resume: {option} was {was}, now it is {value!r}: repeat the earlier value, or use another store"
        )


# ---------------------------------------------------------------------- saved models


class SavedModel(NamedTuple):
    """A model from a file, with its key and what its store knows about it."""

    #: None if the file is not a store.
    key: Any
    model: Any
    about: dict[str, Any] | None

    @property
    def key_column(self) -> str | None:
        """Column of the feed that held the key."""
        return None if self.about is None else self.about["plan"]["key"]


def is_store(path: Path) -> bool:
    """Whether a file is a store, and not a single model."""
    with path.open("rb") as file:
        return file.read(6) == b"SQLite"


def read_only(path: Path) -> Store:
    """Open a store without the right to change it: a run may be writing it."""
    from momostream.storage.store import Store

    return Store(path, read_only=True)


def keys_of(path: Path) -> list[Any]:
    """Keys of all models in a store."""
    with read_only(path) as store:
        return store.keys()


def load_models(path: Path, key: str | None) -> Iterator[SavedModel]:
    """Load the model of a key, or all models of a file, one by one."""
    from momostream.storage import models

    if not is_store(path):
        if key is not None:
            raise ValueError(f"{path}: contains one model without a key: omit --key")
        yield SavedModel(None, models.load(path), None)
        return
    with read_only(path) as store:
        known = store.keys()
        # Keys may be integers, but the command line gives strings.
        wanted = known if key is None else [name for name in known if str(name) == key]
        if not known:
            raise ValueError(f"{path}: contains no model yet")
        if not wanted:
            raise ValueError(
                f"{path}: no model for key {key!r}{_did_you_mean(str(key), [str(name) for name in known])}"
            )
        for name in wanted:
            yield SavedModel(name, store.load(name), about_of(store) or None)
