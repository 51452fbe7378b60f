"""Which versions work: tests in environments with the oldest and the newest packages, on each Python there is.

    python -m benchmarks.versions [SET ...] [--check]

A set is a Python and an end of the bounds in ``pyproject.toml``, such as ``3.11-oldest``, or further extras with their
oldest versions, such as ``3.11-feeds``; the default is all of them. uv makes the environment, with the lowest version
of every direct dependency or with the newest of all, and finds the Pythons of this machine. Answers are appended to
``results/versions.jsonl``; ``results/versions.md`` shows the newest for each set. ``--check`` keeps nothing: CI does
that with the oldest set. A full run takes about 10 minutes, and those of the further extras as many.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.data import ROOT
from benchmarks.harness import RESULTS, about, keep_result, kept_results, one_thread, origin, table, write_results

KEPT = RESULTS / "versions.jsonl"
PYTHONS = ("3.11", "3.12", "3.13")
ENDS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = "sklearn,plot,cli,serve"
TOOLS = ["pytest", "hypothesis", "httpx"]
# Sets with the oldest versions of extras that need brokers, clusters or pins of their own, and their tests.
FURTHER = {
    "feeds": (
        "cli,mqtt,kafka,parquet,postgres,opcua",
        [f"tests/feeds/test_{name}.py" for name in ("mqtt", "mqtt_values", "kafka", "parquet", "postgres", "opcua")],
    ),
    "clusters": ("sklearn,cli,dask,spark", ["tests/engines/test_dask.py", "tests/engines/test_spark.py"]),
    "neighbours": (
        # The newest pyarrow, which theirs would bring, does not take the oldest numpy.
        "sktime,nixtla,plot,parquet",
        ["tests/estimators/test_sktime.py", "tests/estimators/test_nixtla.py"],
    ),
}
SETS = [f"{python}-{end}" for python in PYTHONS for end in ENDS] + [f"3.11-{name}" for name in FURTHER]
# scikit-learn before 1.9 finds no names of columns in frames of the newest polars.
POLARS = {"oldest": "polars==1.20", "newest": "polars"}
PACKAGES = (
    "numpy", "numba", "scipy", "river", "pandas", "joblib", "scikit-learn", "matplotlib", "typer", "starlette",
    "paho-mqtt", "confluent-kafka", "pyarrow", "psycopg", "asyncua", "distributed", "pyspark", "sktime",
    "statsforecast",
)  # fmt: skip
INSTALLED = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name.lower(): each.version for each in distributions()}))
"""
# Every place that calls another package: compiled code, frames, files, the contracts of river and scikit-learn.
TESTS = [
    "tests/kernels/test_cholesky.py",
    "tests/kernels/test_quantiles.py",
    "tests/distributions/test_forecast.py",
    "tests/distributions/test_prediction.py",
    "tests/storage/test_earlier_files.py",
    "tests/estimators/test_frames.py",
    "tests/estimators/test_river_regressor.py",
    "tests/estimators/test_table_frames.py",
    "tests/cli/test_app.py",
]


class NotThereError(Exception):
    """A set cannot be tried on this machine."""


def environment(name: str, folder: Path) -> Path:
    """Make the environment of a set; return its Python."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise SystemExit("benchmarks.versions needs uv: pip install uv")
    version, end = name.split("-")
    # pyenv's shims run one version only; the others lie here.
    installed = sorted(Path(os.environ.get("PYENV_ROOT", "")).glob(f"versions/{version}.*/bin/python"))
    chosen = installed[-1] if installed else version
    done = subprocess.run([uv, "venv", "-q", "--no-python-downloads", "-p", chosen, folder], capture_output=True)
    if done.returncode:
        raise NotThereError(f"no Python {version} on this machine")
    python = folder / "bin" / "python"
    install = [uv, "pip", "install", "-q", "--python", python]
    extras, _ = FURTHER.get(end, (EXTRAS, TESTS))
    bounds = ["--resolution", ENDS.get(end, ENDS["oldest"]), f"{ROOT}[{extras}]"]
    # The tools come second: the oldest packages must not mean the oldest pytest.
    for packages in (bounds, [*TOOLS, POLARS.get(end, POLARS["oldest"])]):
        done = subprocess.run([*install, *packages], capture_output=True, text=True)
        if done.returncode:
            raise NotThereError(f"cannot be installed: {' '.join(done.stderr.split())[:300]}")
    return python


def tried(name: str) -> dict[str, Any]:
    """Run the tests in the environment of a set, with the package that is installed there."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            python = environment(name, place / "env")
        except NotThereError as reason:
            return {"set": name, "not_run": str(reason)}
        report = place / "report.xml"
        # Memory is that of the model, whatever the versions.
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-k", "not bounded_memory_growth"]
        # Old packages warn about newer ones, which nobody can mend any more.
        end = name.split("-")[1]
        options += [] if end == "newest" else ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
        variables = one_thread() | {"MPLBACKEND": "Agg"}
        # The sources for the tests themselves; the package comes from there, too, and is compiled for this set.
        tests = FURTHER[end][1] if end in FURTHER else TESTS
        done = subprocess.run([python, "-m", "pytest", *options, *tests], cwd=ROOT, env=variables)
        if not report.exists():
            return {"set": name, "not_run": f"pytest ended with {done.returncode}"}
        found = json.loads(subprocess.check_output([python, "-c", INSTALLED], text=True))
        return {"set": name, **counts(report), "found": {each: found[each] for each in PACKAGES if each in found}}


def counts(report: Path) -> dict[str, Any]:
    """Numbers of tests in a report of pytest, and the names of those that failed."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = [f"{case.get('classname')}.{case.get('name')}" for case in bad]
    return {"passed": len(cases) - len(bad) - len(skipped), "failed": names, "skipped": len(skipped)}


def line(result: dict[str, Any]) -> list[str]:
    """A set as a line of the table."""
    python, packages = result["set"].split("-")
    if "not_run" in result:
        return [python, packages, f"not run: {result['not_run']}", "", "", ""]
    verdict = "FAIL" if result["failed"] else "pass"
    versions = ", ".join(f"{name} {number}" for name, number in result["found"].items())
    numbers = [result["passed"], len(result["failed"]), result["skipped"]]
    return [python, packages, verdict, *map(str, numbers[:2]), f"{numbers[2]}; {versions}"]


def report(results: list[dict[str, Any]]) -> str:
    """The matrix, the newest result of each set."""
    newest = {result["set"]: result for result in results}
    shown = [newest[name] for name in SETS if name in newest]
    header = ["Python", "packages", "result", "passed", "failed", "skipped; versions"]
    parts = [
        "# Versions",
        origin("versions", shown),
        "Oldest: the lower bounds of `pyproject.toml`. Newest: everything that the package index had on that day. "
        f"The tests are {', '.join(f'`{path}`' for path in TESTS)}; all others run with the newest set on one Python. "
        "Sets of extras have the oldest versions of these, and their tests: "
        + "; ".join(f"*{name}* {', '.join(f'`{path}`' for path in tests)}" for name, (_, tests) in FURTHER.items())
        + ".",
        table(header, [line(result) for result in shown]),
    ]
    failures = [f"* {result['set']}: {name}" for result in shown for name in result.get("failed", [])]
    return "\n\n".join([*parts, *(["Failures:", "\n".join(failures[:40])] if failures else [])])


def main() -> None:
    """Try the sets that are asked for."""
    parser = argparse.ArgumentParser(description="Test the oldest and the newest packages on each Python.")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all")
    parser.add_argument("--check", action="store_true", help="keep nothing")
    options = parser.parse_args()
    unknown = set(options.sets) - set(SETS)
    if unknown:
        parser.error(f"unknown set: {', '.join(sorted(unknown))}")
    results = []
    for name in options.sets or SETS:
        result = tried(name) | about()
        print(
            json.dumps({key: result.get(key) for key in ("set", "not_run", "passed", "failed", "skipped")}), flush=True
        )
        results.append(result)
        if not options.check:
            keep_result(KEPT, result)
            write_results("versions", report(kept_results(KEPT)))
    if any(result.get("failed") or "not_run" in result for result in results):
        raise SystemExit("not all sets have passed")


if __name__ == "__main__":
    main()
