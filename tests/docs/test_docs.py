"""README and documentation: code runs and prints what they show, tables are those of the code, the site is complete."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.fences import Block, fenced_blocks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
README = {"README": ROOT / "README.md"}
PAGES_WITH_CODE = {
    name: path
    for name, path in (PAGES | README).items()
    if any(block.language in {"python", "bash"} for block in fenced_blocks(path))
}
LIMIT_SECONDS = 600
# Characters that only a shell understands.
SHELL = re.compile(r"[|<>&;$*]")


# ---------------------------------------------------------------------- blocks run, and print what is shown


@pytest.fixture
def shell(tmp_path) -> Callable[[str], None]:
    """Run a command by bash, where `momostream` is this tree's."""
    folder = tmp_path / ".bin"
    folder.mkdir()
    command = folder / "momostream"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m momostream "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": search, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}

    def run(line: str) -> None:
        # It inherits our output, which is captured.
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], env=env, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, line

    return run


def run_commands(text: str, shell: Callable[[str], None]) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        if not line or line.startswith("#"):
            continue
        words = shlex.split(line)
        if words[0] != "momostream" or SHELL.search(line):
            shell(line)
            continue
        # In this process: a new one takes 2 s to import what it needs.
        from momostream.cli.app import app

        with pytest.raises(SystemExit) as ended:
            app(words[1:], prog_name="momostream")
        assert not ended.value.code, line


def same_output(shown: str, printed: str) -> bool:
    """Whether words are equal, and numbers nearly so; ``...`` stands for any lines.

    Nearly is one unit of the last digit shown, or 2 %: other machines add up in another order.
    """
    pattern = re.compile(r"(-?[\d,]*\.?\d+)")
    wanted, got = ([line.split() for line in text.strip().splitlines() if line.strip()] for text in (shown, printed))

    def same_word(a: str, b: str) -> bool:
        parts, others = pattern.split(a), pattern.split(b)
        if parts[::2] != others[::2]:
            return False
        for x, y in zip(parts[1::2], others[1::2], strict=True):
            last_digit = 10.0 ** -len(x.partition(".")[2])
            wanted_number, got_number = (float(text.replace(",", "")) for text in (x, y))
            if abs(wanted_number - got_number) > max(1.01 * last_digit, 0.02 * abs(wanted_number)):
                return False
        return True

    def same_line(a: list[str], b: list[str]) -> bool:
        return len(a) == len(b) and all(map(same_word, a, b))

    def same_from(i: int, j: int) -> bool:
        if i == len(wanted):
            return j == len(got)
        if wanted[i] == ["..."]:
            return any(same_from(i + 1, k) for k in range(j, len(got) + 1))
        return j < len(got) and same_line(wanted[i], got[j]) and same_from(i + 1, j + 1)

    return same_from(0, 0)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("power 3.1", "power  3.2\n", True),
        ("power 3.1", "power 3.3", False),
        ("power 3.1", "wind 3.1", False),
        ("rows 1,000", "rows 1,001", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("12%", "13%", True),
        ("12%", "15%", False),
        ("1299.0919", "1301.0", True),
        ("1299.0919", "1351.0", False),
        ("7,1.5,2.5", "7,1.5,2.6", True),
        ("7,1.5,2.5", "7,1.5,3.6", False),
        ("{'power': (513, 56)}", "{'power': (513, 56)}", True),
        ("a", "a b", False),
        ("a", "", False),
    ],
)
def test_comparison_of_outputs(shown, printed, same):
    assert same_output(shown, printed) is same


@pytest.mark.parametrize("name", PAGES_WITH_CODE)
def test_blocks_run_and_print_what_is_shown(name, tmp_path, monkeypatch, capfd, shell):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "100")
    path = PAGES_WITH_CODE[name]
    namespace: dict[str, Any] = {"__name__": "docs"}
    blocks = fenced_blocks(path)
    capfd.readouterr()
    for block, after in zip(blocks, [*blocks[1:], Block("", 0, "")], strict=True):
        if block.language == "python":
            exec(compile(block.in_place, str(path), "exec"), namespace)
        elif block.language == "bash":
            run_commands(block.text, shell)
        else:
            continue
        printed = capfd.readouterr().out
        if after.language == "text":
            assert same_output(after.text, printed), f"{name}:{after.line} shows\n{after.text}\nbut got\n{printed}"


def test_there_are_pages_with_code():
    assert {"start.md", "tutorials/feeds.md", "tutorials/forecasting.md"} <= {*PAGES_WITH_CODE}


# ---------------------------------------------------------------------- tables of parameters


def facades() -> dict[str, Any]:
    from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor
    from momostream.sklearn import MOMoGPRegressor as TableRegressor

    return {
        "momostream.MOMoGPForecaster": MOMoGPForecaster,
        "momostream.MOMoGPMonitor": MOMoGPMonitor,
        "momostream.MOMoGPRegressor": MOMoGPRegressor,
        "momostream.sklearn.MOMoGPRegressor": TableRegressor,
    }


def shown_defaults(section: str) -> dict[str, str]:
    """Names and defaults in the first two columns of the tables of a section; names may share a row."""
    shown: dict[str, str] = {}
    for line in section.splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.split(" | ")]
        if line.startswith("| `") and len(cells) > 1:
            assert len(cells[0]) == len(cells[1]), f"not a default for each name: {line}"
            shown.update(zip(cells[0], cells[1], strict=True))
    return shown


@pytest.mark.parametrize("title", facades())
def test_parameters_and_defaults_are_those_of_the_code(title):
    page = PAGES["parameters.md"].read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert sections.keys() >= facades().keys()
    expected = {name: repr(p.default) for name, p in inspect.signature(facades()[title]).parameters.items()}
    assert shown_defaults(sections[title]) == expected


# ---------------------------------------------------------------------- the site


class Loaded(HTMLParser):
    """Addresses of everything that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = ["src", "srcset", "data", "poster"] if tag != "a" else []
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            names.append("href")
        self.found += [given[name] or "" for name in names if name in given]
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style") or "")


def is_remote(address: str) -> bool:
    return bool(re.match(r"\s*[\"']?(?:\w+:)?//", address))


def test_what_counts_as_remote():
    page = Loaded()
    page.feed(
        '<link rel="stylesheet" href="//cdn/x.css"><script src="https://x/y.js"></script><a href="http://z">z</a>'
    )
    assert [*map(is_remote, page.found)] == [True, True]
    assert not any(map(is_remote, ["../assets/x.css", "data:image/png;base64,//8A", "#top"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_site_has_every_page(site):
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    assert built >= PAGES.keys()


def test_site_loads_nothing_from_the_network(site):
    remote = []
    for path in site.rglob("*.html"):
        page = Loaded()
        page.feed(path.read_text(encoding="utf-8"))
        remote += [f"{path.name}: {address}" for address in page.found if is_remote(address)]
    for path in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import\s+)([^);]*)", path.read_text(encoding="utf-8"))
        remote += [f"{path.name}: {address}" for address in found if is_remote(address)]
    assert remote == []


def test_every_public_module_is_documented(site):
    inventory = (site / "api" / "index.html").read_text(encoding="utf-8")
    modules = {path.stem for path in (DOCS / "api").glob("*.md")} - {"index"}
    for module in modules:
        assert f'href="{module}.html"' in inventory, module


@pytest.mark.parametrize(
    ("page", "name", "default"), [("regressor", "tuning_evaluations", "20"), ("feeds", "format", "None")]
)
def test_parameters_are_shown_with_their_own_defaults(site, page, name, default):
    text = (site / "api" / f"{page}.html").read_text(encoding="utf-8")
    row = re.search(rf"<code>{name}</code>.*?</tr>", text, re.DOTALL)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0], re.DOTALL)
    assert re.sub(r"<[^>]+>", "", cells[-1]).strip() == default


# ---------------------------------------------------------------------- pictures


def test_pictures_are_small_and_used():
    pictures = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}
    assert pictures
    assert all(size < 150_000 for size in pictures.values()), pictures
    assert sum(pictures.values()) < 1_000_000
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES.values())
    assert [name for name in pictures if f"images/{name}" not in text] == []
    script = (DOCS / "figures.py").read_text(encoding="utf-8")
    # Links lead to pictures of the benchmarks, which have scripts of their own.
    made = [name for name in pictures if not (DOCS / "images" / name).is_symlink()]
    assert [name for name in made if name not in script] == []
