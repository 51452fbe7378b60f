"""Imports point down: who may import whom, and what `import momostream` may load."""

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

# A module imports modules of strictly lower rank only.
LAYERS = [
    {"kernels", "student", "warping", "presets", "nodes", "rows", "vocabulary", "container", "seasons", "formats"},
    {
        "marginals",
        "dense",
        "covariance",
        "statistics",
        "autoregression",
        "stacking",
        "past",
        "calendars",
        "turbine",
        "feeds",
    },
    {"laws", "regions", "bounded", "blending", "regressions", "conformal", "datasets", "messages"},
    {"distribution", "linear", "structure", "tuning", "weights", "leaves", "mqtt", "kafka"},
    {"inference", "trees", "brokers"},
    {"experts", "circuits"},
    {"model", "stream", "horizons"},
    {"prediction", "forecast"},
    {"online", "sklearn", "forecasting", "metrics", "tracking"},
    {"persistence", "sinks", "outline", "plans"},
    {"drawing", "blocks"},
    {"plotting", "store"},
    {"fleet", "backtesting"},
    {"running", "spark"},
    {"report", "live", "inspection"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
RANKS = {module: rank for rank, modules in enumerate(LAYERS) for module in modules}

# Lower modules may reach up to these, inside functions only: `forecast.plot()`, `model.save()`.
LATE = {"drawing", "plotting", "persistence"}

# What modules may know beside the standard library and lower modules, where it is less than everything.
THIRD_PARTY = {
    "kernels": {"numpy", "numba"},
    "turbine": {"numpy", "numba"},
    "presets": set(),
    "nodes": {"numpy"},
    "warping": {"numpy", "scipy"},
    "student": {"numpy", "scipy"},
    "marginals": {"numpy", "scipy"},
    "laws": {"numpy"},
    "distribution": {"numpy", "scipy"},
}
# Up to the model there are only arrays; data sets are frames by nature.
FRAMEWORKS = {"pandas", "polars", "river", "sklearn", "matplotlib", "typer", "rich"}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}


class Import(NamedTuple):
    target: str  # dotted and absolute
    line: int
    late: bool  # inside a function


def imports_of(source: str) -> list[Import]:
    """Every import statement of a module that lies directly in the package."""
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
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(source), False)
    return found


def upward(module: str, source: str) -> list[str]:
    """Complaints about imports of momostream that do not point down."""
    complaints = []
    for target, line, late in imports_of(source):
        package, _, rest = target.partition(".")
        if package != "momostream" or rest == "__version__":
            continue
        name = rest.split(".")[0]
        down = RANKS.get(name, len(LAYERS)) < RANKS[module]
        if name == "plotting" and not late:
            complaints.append(f"{module}.py:{line}: plotting is imported inside functions only")
        elif not down and not (late and name in LATE):
            complaints.append(f"{module}.py:{line}: imports {target}, which is not below {module}")
    return complaints


def third_party(source: str) -> set[str]:
    packages = {target.split(".")[0] for target, _, _ in imports_of(source)}
    return packages - sys.stdlib_module_names - {"momostream"}


@pytest.mark.parametrize("module", MODULES)
def test_module_has_a_rank(module):
    assert module in RANKS, f"give {module} its place in LAYERS"


@pytest.mark.parametrize("module", sorted(MODULES.keys() & RANKS.keys()))
def test_imports_point_down(module):
    assert upward(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("module", sorted(MODULES.keys() & RANKS.keys()))
def test_module_knows_no_more_than_it_may(module):
    known = third_party(MODULES[module].read_text(encoding="utf-8"))
    if module in THIRD_PARTY:
        assert known <= THIRD_PARTY[module]
    if RANKS[module] <= RANKS["model"] and module != "datasets":
        assert not known & FRAMEWORKS


def test_kernels_know_nothing_of_momostream():
    source = MODULES["kernels"].read_text(encoding="utf-8")
    assert [i for i in imports_of(source) if i.target.split(".")[0] == "momostream"] == []


@pytest.mark.parametrize(
    ("module", "source", "n_complaints"),
    [
        ("regions", "from momostream.kernels import OK", 0),
        ("regions", "from momostream import kernels, __version__", 0),
        ("regions", "from . import kernels", 0),
        ("regions", "from .linear import x", 1),  # same rank
        ("regions", "import momostream.model", 1),
        ("regions", "import momostream", 1),
        ("regions", "from momostream import model, sklearn", 2),
        ("regions", "try:\n    from . import model\nexcept ImportError:\n    pass", 1),
        ("regions", "def f():\n    from momostream import model", 1),
        ("model", "def f():\n    from momostream.plotting import draw", 0),
        ("cli", "from momostream.plotting import draw", 1),
        ("cli", "from momostream.model import Model", 0),
    ],
)
def test_the_rule_itself(module, source, n_complaints):
    assert len(upward(module, source)) == n_complaints


def test_import_is_light():
    heavy = ["river", "sklearn", "pandas", "matplotlib", "numba"]
    code = f"import sys, momostream; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
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
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            found += [f"{name}:{number}: {match}" for match in MACHINE_PATH.findall(line)]
    assert found == []
