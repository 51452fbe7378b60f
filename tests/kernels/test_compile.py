"""The decorator of the kernels: what is cached, and when it is compiled again."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import momostream
from momostream import kernels

PACKAGE = Path(momostream.__file__).parent
PROGRAM = textwrap.dedent(
    """
    import numpy as np
    from momostream.kernels.caller import twice
    print(twice(3.0), sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))
    """
)


@pytest.fixture
def package(tmp_path):
    """A package of two rooms: a kernel that calls one in another file."""
    folder = tmp_path / "momostream" / "kernels"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "_compile.py"):
        shutil.copy(PACKAGE / "kernels" / name, folder)
    (tmp_path / "momostream" / "__init__.py").touch()
    head = "from momostream.kernels._compile import f8, kernel\n"
    (folder / "callee.py").write_text(f"{head}@kernel(f8(f8))\ndef once(x):\n    return x + 1.0\n")
    (folder / "caller.py").write_text(
        f"{head}from momostream.kernels.callee import once\n@kernel(f8(f8))\ndef twice(x):\n    return 2.0 * once(x)\n"
    )
    return tmp_path


def run(folder: Path) -> list[float]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": str(folder)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


def test_code_is_cached_until_a_callee_in_another_file_changes(package):
    assert run(package) == [8.0, 0, 1]
    assert run(package) == [8.0, 1, 0]
    callee = package / "momostream" / "kernels" / "callee.py"
    callee.write_text(callee.read_text().replace("x + 1.0", "x + 2.0"))
    assert run(package) == [10.0, 0, 1]


def test_nothing_is_cached_where_numba_has_no_stamp(package):
    """The stamp is private to numba: if it goes, code may not be cached, as it could be stale."""
    path = package / "momostream" / "kernels" / "_compile.py"
    path.write_text(path.read_text().replace('"_source_stamp"', '"_no_such_stamp"'))
    for _ in range(2):
        value, n_hits, _ = run(package)
        assert (value, n_hits) == (8.0, 0)
    assert list(package.rglob("*.nbi")) == []


INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"


def test_cached_code_is_not_needed():
    """Without any directory for the cache the module still imports and computes."""
    # Compiling every kernel takes long; one room is enough.
    program = """
        import numba.core.caching as caching
        class Nowhere(caching.FunctionCache._impl_class):
            _locator_classes = []
        caching.FunctionCache._impl_class = Nowhere
        import numpy as np
        from momostream.kernels.scalar import dot
        assert dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 11.0
        assert not dot.stats.cache_path
    """
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(INTERPRETED, reason="signatures exist in compiled code only")
def test_each_kernel_has_its_signatures_and_keeps_nan():
    rooms = [import_module(f"momostream.kernels.{info.name}") for info in pkgutil.iter_modules(kernels.__path__)]
    compiled = {f for room in rooms for f in vars(room).values() if hasattr(f, "nopython_signatures")}
    assert len(compiled) >= 50
    for function in compiled:
        # One, or one for each precision of a factor.
        assert len(function.signatures) in (1, 2), function
        assert function.targetoptions["fastmath"] <= {"reassoc", "contract", "nsz"}
        assert function.targetoptions["nogil"] and function.targetoptions["error_model"] == "numpy"
