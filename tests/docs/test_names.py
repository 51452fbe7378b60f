"""Files that the documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["CONTRIBUTING.md", "README.md", "docs/how-it-works.md", "docs/decisions.md", "docs/api/index.md"]
# `stream/tree.py`, `momostream/metrics.py`, `tests/kernels/`, `.ci/run`; a star stands for any name.
NAMED = re.compile(r"`([\w.*/-]+/[\w.*-]*)`")
FOLDERS = (ROOT, ROOT / "momostream", ROOT / "tests")


def exists(name: str) -> bool:
    return any(any(folder.glob(name.rstrip("/"))) for folder in FOLDERS)


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    names = {name for name in NAMED.findall(text) if name.endswith((".py", ".md", "/")) and not name.startswith("..")}
    assert [name for name in sorted(names) if not exists(name)] == []


def test_named_modules_exist():
    for page in PAGES:
        for module in set(re.findall(r"`(momostream(?:\.[a-z_]+)+)`", (ROOT / page).read_text(encoding="utf-8"))):
            path = ROOT.joinpath(*module.split("."))
            parent = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
            known = path.is_dir() or path.with_suffix(".py").is_file()
            assert known or path.name in parent.read_text(encoding="utf-8"), f"{page} names {module}"
