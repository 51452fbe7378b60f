"""The decorator of the kernels: what is kept on disk, when it is compiled again, and by which process."""

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
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
# The result, and how many kernels were loaded and compiled by this process.
PROGRAM = """
    from momostream.kernels.caller import twice
    print(twice(3.0), sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))
"""


def write_package(root: Path) -> Path:
    """A package of two rooms: a kernel that calls one in another file, and one that calls none."""
    folder = root / "momostream" / "kernels"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "_code.py", "_compile.py", "_workers.py"):
        shutil.copy(PACKAGE / "kernels" / name, folder)
    (root / "momostream" / "__init__.py").touch()
    head = "from momostream.kernels._compile import f8, kernel\n"
    (folder / "callee.py").write_text(
        f"{head}STEP = 1.0\n@kernel(f8(f8))\ndef once(x):\n    return x + STEP\n"
        "@kernel(f8(f8))\ndef other(x):\n    return x\n"
    )
    (folder / "caller.py").write_text(
        f"{head}from momostream.kernels.callee import once\n@kernel(f8(f8))\ndef twice(x):\n    return 2.0 * once(x)\n"
    )
    return root


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path)


@pytest.fixture(scope="module")
def first_start(tmp_path_factory):
    """A package that has been run once, with the answer and the messages of that run."""
    root = write_package(tmp_path_factory.mktemp("compiled"))
    return root, *answers(started(root))


@pytest.fixture
def compiled(first_start, tmp_path):
    """A copy of it: code does not depend on the folder."""
    return shutil.copytree(first_start[0], tmp_path / "copy")


def started(folder: Path, program: str = PROGRAM, **settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": str(folder), **settings}
    if "NUMBA_CACHE_DIR" not in settings:
        environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=-1, stderr=-1, text=True)


def answers(process: subprocess.Popen[str]) -> tuple[list[float], str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [float(word) for word in out.split()], err


def run(folder: Path, program: str = PROGRAM, **settings: str) -> list[float]:
    return answers(started(folder, program, **settings))[0]


def code(package: Path, name: str = "") -> list[Path]:
    return sorted(package.rglob(f"{name}*.code"))


def edit(package: Path, name: str, old: str, new: str) -> None:
    path = package / "momostream" / "kernels" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_workers_compile_and_this_process_loads(first_start, compiled):
    _, values, said = first_start
    assert values == [8.0, 1, 0]
    assert "compiling 3 functions" in said
    assert answers(started(compiled)) == ([8.0, 1, 0], "")


@pytest.mark.parametrize(("old", "new"), [("x + STEP", "x + 2.0"), ("STEP = 1.0", "STEP = 2.0")])
def test_an_edited_callee_in_another_file_is_never_run_stale(compiled, old, new):
    unchanged = code(compiled, "callee.other")
    edit(compiled, "callee.py", old, new)
    values, said = answers(started(compiled))
    assert values == [10.0, 1, 0]
    # The caller is compiled again, because it holds the callee; others are not.
    assert "compiling 2 functions" in said
    assert code(compiled, "callee.other") == unchanged


def test_comments_and_other_kernels_compile_nothing_again(compiled):
    edit(compiled, "callee.py", "STEP = 1.0", "# a step\nSTEP = 1.0")
    assert answers(started(compiled)) == ([8.0, 1, 0], "")


def test_code_of_another_processor_or_version_is_not_used(compiled):
    files = code(compiled)
    assert run(compiled, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == [8.0, 1, 0]
    assert len(code(compiled)) == 2 * len(files)
    # A processor without AVX2 must not get code for the baseline.
    program = """
        from llvmlite import binding
        features = binding.get_host_cpu_features()
        features["avx2"] = False
        binding.get_host_cpu_features = lambda: features
        from momostream.kernels._code import BASELINE, target
        print(target()[0] == BASELINE)
        import numpy
        from momostream.kernels import _code
        versions = _code._versions()
        _code._versions.cache_clear()
        numpy.__version__ = "1.26.4"
        print(versions == _code._versions())
    """
    assert started(compiled, program).communicate(timeout=600)[0].split() == ["False", "False"]


def test_damaged_code_is_compiled_again(compiled):
    (file,) = code(compiled, "caller.twice")
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    values, said = answers(started(compiled))
    assert values == [8.0, 0, 1]
    assert "is damaged" in said


def test_processes_that_start_together_compile_once(package):
    both = [started(package) for _ in range(2)]
    done = [answers(process) for process in both]
    assert [values for values, _ in done] == [[8.0, 1, 0]] * 2
    assert sum("compiling" in said for _, said in done) == 1


def test_a_failing_worker_leaves_the_work_to_this_process(package):
    edit(package, "_workers.py", "    gc.disable()", '    sys.exit("no room")')
    values, said = answers(started(package))
    assert values == [8.0, 0, 1]
    assert "no room" in said
    # It was kept, for the processor of this process.
    assert run(package)[:2] == [8.0, 1]


def test_an_error_in_a_kernel_shows_its_place(package):
    edit(package, "caller.py", "2.0 * once(x)", "2.0 * once(x, x)")
    process = started(package)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "caller.py" in said and "TypingError" in said


def test_a_kernel_refers_to_numbers_and_kernels_only(package):
    edit(package, "callee.py", "STEP = 1.0", "STEP = [1.0]")
    process = started(package)
    assert "cannot refer to STEP, a list" in process.communicate(timeout=600)[1]


def test_another_folder_for_code(package, tmp_path):
    run(package, NUMBA_CACHE_DIR=str(tmp_path / "chosen"))
    assert {file.parent for file in code(package)} == {tmp_path / "chosen" / "momostream"}


def test_folders_that_cannot_be_written(package, tmp_path):
    """A read-only installation keeps code in the user's cache; without any folder each process compiles."""
    # A file in its place, because root may write into any folder.
    (package / "momostream" / "kernels" / "_machine_code").touch()
    settings = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    assert run(package, **settings) == [8.0, 1, 0]
    assert {file.parent for file in code(package)} == {tmp_path / "home" / "momostream"}
    (tmp_path / "nothing").touch()
    assert run(package, XDG_CACHE_HOME=str(tmp_path / "nothing")) == [8.0, 0, 1]


@pytest.mark.parametrize(
    ("file", "old"),
    [("_compile.py", '"_cache")'), ("_code.py", '"_reduce"'), ("_code.py", "import NullCache")],
)
def test_a_numba_without_its_private_parts_compiles_each_time(package, file, old):
    edit(package, file, old, old.replace("_", "_no_such").replace("NullCache", "NoSuchCache"))
    for _ in range(2):
        assert run(package)[:2] == [8.0, 0]
    assert code(package) == []


def test_private_parts_of_numba_are_there():
    """When this fails, numba has changed: kernels still work, but each process compiles them."""
    from numba.core.cpu import CPUTargetOptions

    from momostream.kernels import _code, _compile

    assert _code.has_internals
    assert set(_compile._LEAN) == {"_nrt", "no_cfunc_wrapper"} <= set(dir(CPUTargetOptions))


@pytest.mark.skipif(INTERPRETED, reason="signatures exist in compiled code only")
def test_each_kernel_has_its_signatures_and_keeps_nan():
    names = [info.name for info in pkgutil.iter_modules(kernels.__path__)]
    rooms = [import_module(f"momostream.kernels.{name}") for name in names]
    compiled = {f for room in rooms for f in vars(room).values() if hasattr(f, "nopython_signatures")}
    assert len(compiled) >= 50
    for function in compiled:
        # One, or one for each precision of a factor.
        assert len(function.signatures) in (1, 2), function
        assert function.targetoptions["fastmath"] <= {"reassoc", "contract", "nsz"}
        assert function.targetoptions["nogil"] and function.targetoptions["error_model"] == "numpy"
        # No counting of references: a kernel that allocates does not compile.
        assert function.targetoptions["_nrt"] is False
