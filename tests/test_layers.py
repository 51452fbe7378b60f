"""Imports point up the list of packages; `import momostream` stays light."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import momostream

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "momostream"

# The packages as the data flow. A module imports from packages further up in this list, and from its own.
PACKAGES = [
    "kernels",
    "gp",
    "distributions",
    "batch",
    "stream",
    "horizon",
    "monitor",
    "estimators",
    "feeds",
    "storage",
    "runs",
    "engines",
    "datasets",
    "show",
    "serve",
    "cli",
]
# Modules directly in the package: checks of numbers and settings; and doors, through which nobody inside goes.
SHARED = {"_checks", "_numbers"}
DOORS = {"__main__", "fleet", "metrics", "nixtla", "plotting", "report", "sklearn", "sktime", "spark", "store"}

# Higher packages that a lower one may reach, inside functions only: `model.save()`, `forecast.plot()`.
LATE = {"storage", "show"}

# Third-party packages that a package may import, for those that may not import all.
THIRD_PARTY = {
    "_checks": {"numpy"},
    "_numbers": {"numpy"},
    "kernels": {"numpy", "numba", "llvmlite"},
    "gp": {"numpy", "scipy", "threadpoolctl"},
    "distributions": {"numpy", "scipy", "pandas", "river", "matplotlib"},
    "batch": {"numpy", "scipy", "joblib", "tqdm"},
    "stream": {"numpy", "scipy"},
    "horizon": {"numpy", "scipy"},
    "monitor": {"numpy", "scipy"},
}
# Distributions are shown as frames, converted to river's and drawn; all that inside functions.
INSIDE_FUNCTIONS = {"pandas", "river", "matplotlib"}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}


class Import(NamedTuple):
    target: str  # dotted and absolute
    line: int
    late: bool  # inside a function, or for type checkers only


def imports_of(source: str) -> list[Import]:
    """Every import statement of a module."""
    found: list[Import] = []

    def visit(node: ast.AST, late: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, ["momostream" if node.level else "", node.module]))
            if base == "momostream":
                found.extend(Import(f"{base}.{alias.name}", node.lineno, late) for alias in node.names)
            else:
                found.append(Import(base, node.lineno, late))
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        # Types are not there when the program runs.
        late = late or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(source), False)
    return found


def upward(module: str, source: str) -> list[str]:
    """Complaints about imports of momostream that point down the list of packages."""
    complaints = []
    home = module.split(".")[0]
    for target, line, late in imports_of(source):
        package, _, rest = target.partition(".")
        if package != "momostream" or rest == "__version__" or rest.split(".")[0] in SHARED:
            continue
        name = rest.split(".")[0]
        known = name in PACKAGES and (home in DOORS or PACKAGES.index(name) <= PACKAGES.index(home))
        if not known and not (late and name in LATE):
            complaints.append(f"{module}:{line}: imports {target}, which is not above {home}")
    return complaints


def third_party(source: str, late: bool | None = None) -> set[str]:
    packages = {i.target.split(".")[0] for i in imports_of(source) if late is None or i.late == late}
    return packages - sys.stdlib_module_names - {"momostream"}


def test_every_module_lies_in_a_package():
    assert {module.split(".")[0] for module in MODULES} == {*PACKAGES, *SHARED, *DOORS}


def test_imports_point_up_the_list():
    read = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items() if module not in SHARED}
    assert [complaint for module, source in read.items() for complaint in upward(module, source)] == []


def test_packages_know_no_more_than_they_may():
    for module, path in MODULES.items():
        source, home = path.read_text(encoding="utf-8"), module.split(".")[0]
        if home in THIRD_PARTY:
            assert third_party(source) <= THIRD_PARTY[home], module
            assert not third_party(source, late=False) & INSIDE_FUNCTIONS, module


def test_doors_hold_no_code():
    for door in DOORS - {"__main__"}:
        body = ast.parse(MODULES[door].read_text(encoding="utf-8")).body
        assert all(isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in body), door


@pytest.mark.parametrize(
    ("module", "source", "n_complaints"),
    [
        ("gp.covariance", "from momostream.kernels.scalar import OK", 0),
        ("gp.covariance", "from momostream import __version__, _numbers", 0),
        ("gp.covariance", "from momostream.gp import linalg", 0),
        ("gp.covariance", "import momostream.batch.model", 1),
        ("gp.covariance", "import momostream", 1),
        ("gp.covariance", "from momostream import batch, sklearn", 2),
        ("gp.covariance", "try:\n    from momostream import batch\nexcept ImportError:\n    pass", 1),
        ("gp.covariance", "def f():\n    from momostream.batch import model", 1),
        ("batch.model", "def f():\n    from momostream.show.plots import draw", 0),
        ("batch.model", "from momostream.show.plots import draw", 1),
        ("cli.run", "from momostream.batch.model import Model", 0),
        ("cli.run", "from momostream.sklearn import MOMoGPRegressor", 1),
        ("sklearn", "from momostream.estimators.table import MOMoGPRegressor", 0),
    ],
)
def test_the_rule_itself(module, source, n_complaints):
    assert len(upward(module, source)) == n_complaints


# Physics that is one step of an integration, and loops that calls would slow down.
LONG = {"datasets.turbine"}


def code_lines(function: ast.FunctionDef) -> int:
    """Lines of a function, its docstring not counted."""
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_files_and_functions_stay_short():
    """At most 600 and 60 lines; ruff looks after complexity."""
    read = {m: p.read_text(encoding="utf-8") for m, p in MODULES.items() if m not in LONG and "kernels" not in m}
    assert {module: n for module, text in read.items() if (n := len(text.splitlines())) > 600} == {}
    functions = [(m, node) for m, text in read.items() for node in ast.walk(ast.parse(text))]
    long = {(m, f.name): code_lines(f) for m, f in functions if isinstance(f, ast.FunctionDef)}
    # The signatures of the estimators are their parameters.
    assert {name: n for name, n in long.items() if n > 60 and name[1] != "__init__"} == {}


def test_class_names_are_used_once():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in MODULES.values()]
    found = [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    # The same names for users of river, of scikit-learn and of sktime.
    assert sorted({name for name in found if found.count(name) > 1}) == ["MOMoGPForecaster", "MOMoGPRegressor"]


@pytest.mark.system
def test_import_is_light():
    heavy = ["river", "sklearn", "pandas", "matplotlib", "numba"]
    code = f"import sys, momostream; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_exports_resolve():
    for name in momostream.__all__:
        assert getattr(momostream, name) is not None
        assert name in dir(momostream)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = momostream.no_such_name


# A home, a scratch folder or a mount of one machine. The path of a URL has a letter before its slash.
MACHINE_PATH = re.compile(r"(?<![\w.)}~$*-])(?:/(?:home|Users|root|work|tmp|mnt|opt)/|[A-Z]:\\Users\\)[\w.-]+")


def test_no_path_of_one_machine():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # Files not yet added count too: they are about to be.
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            found += [f"{name}:{number}: {match}" for match in MACHINE_PATH.findall(line)]
    assert found == []
