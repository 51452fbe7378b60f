"""Folders with a feed in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import farm_text, feed_text


@pytest.fixture
def turbine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("turbine.csv").write_text(feed_text(80))
    return tmp_path


@pytest.fixture
def farm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("farm.csv").write_text(farm_text(20))
    return tmp_path
