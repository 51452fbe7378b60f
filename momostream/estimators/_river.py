"""River's base class of forecasters, without the rest of its package.

``river.time_series`` imports river's metrics and trees, and with them pandas, scikit-learn and scipy.stats: half of the
time that a first forecast takes. The base class itself lies in a small module that needs `river.base` only. That module
is executed here on its own; when somebody imports ``river.time_series`` later, its import finds the same module, so
that ``isinstance`` and river's checks see one class.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from river.time_series.base import Forecaster

__all__ = ["Forecaster"]

PACKAGE = "river.time_series"
NAME = f"{PACKAGE}.base"


class _Loaded(MetaPathFinder, Loader):
    """Answers the import of one module with the module that has been executed already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Specification of the module; None for all others."""
        return spec_from_loader(fullname, self) if fullname == self.module.__name__ else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do, also for later imports."""
        sys.meta_path.remove(self)


def _base_module() -> ModuleType:
    """The module of the base class: on its own if that is possible, else with its package."""
    from river import base

    if PACKAGE not in sys.modules and base.__file__ is not None:
        folder = Path(base.__file__).parents[1] / "time_series"
        spec = PathFinder.find_spec(NAME, [str(folder)])
        if spec is not None and spec.loader is not None and _needs_little(folder / "base.py"):
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.meta_path.insert(0, _Loaded(module))
            return module
    from importlib import import_module

    return import_module(NAME)


def _needs_little(file: Path) -> bool:
    """Whether a module imports nothing of its own package; another version of river might."""
    lines = [line.split() for line in file.read_text("utf-8").splitlines()]
    return not any(
        words[0] in {"from", "import"} and (words[1].startswith(".") or words[1].startswith(PACKAGE))
        for words in lines
        if len(words) > 1
    )


if not TYPE_CHECKING:
    Forecaster = _base_module().Forecaster
