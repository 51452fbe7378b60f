"""Help, versions, missing packages, the demo."""

from __future__ import annotations

import subprocess
import sys

import pytest

import momostream
from tests.cli.commands import FORECAST, ROOT, call


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, time; from momostream.cli.app import app\n"
        "from typer.testing import CliRunner\n"
        "assert 'forecast' in CliRunner().invoke(app, ['--help']).output\n"
        "print([m for m in ('numpy', 'numba', 'pandas', 'river', 'matplotlib') if m in sys.modules])\n"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy, seconds = done.stdout.splitlines()
    assert heavy == "[]" and float(seconds) < 1.0


def test_every_command_has_a_help():
    for command in ("demo", "run", "fit", "forecast", "inspect", "read"):
        out, _ = call(command, "--help")
        assert "Usage" in out
    assert "is not the data set of the paper" in " ".join(call("demo", "--help")[0].split())
    assert call("--version")[0].strip() == f"momostream {momostream.__version__}"


def test_missing_packages_are_named(monkeypatch):
    from momostream import __main__

    monkeypatch.delitem(sys.modules, "momostream.cli.app")
    monkeypatch.delattr("momostream.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'momostream\[cli\]'"):
        __main__.main()


def test_reports_need_matplotlib(turbine, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _, told = call("run", "turbine.csv", *FORECAST, "--report", "r.html", code=1)
    assert told == "momostream: --report needs matplotlib: pip install 'momostream[plot]'\n"


def test_demo(tmp_path):
    out, _ = call("demo", "--folder", tmp_path / "demo", "--rows", "240", "--horizon", "6")
    assert out.strip() == f"report: {tmp_path / 'demo' / 'report.html'}"
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "simulated wind turbine" in page and "momostream demo --rows 240 --horizon 6 --seed 0" in page
    assert len(list((tmp_path / "demo").glob("*.png"))) >= 5
