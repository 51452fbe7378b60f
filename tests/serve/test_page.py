"""The page in headless Chromium: tiles, fan, alarms, acknowledgements, hostile names; nothing from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .farms import push, row, running

ROOT = Path(__file__).resolve().parents[2]


def tools():
    """Node, Chromium and playwright-core; skips where one is missing."""
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("chromium-browser")
    named = os.environ.get("MOMOSTREAM_PLAYWRIGHT")
    folder = Path(named) if named else ROOT / ".venv" / "browser"
    library = folder / "node_modules" / "playwright-core" / "index.mjs"
    missing = [
        name
        for name, found in (
            ("node", node),
            ("chromium", chromium),
            (f"playwright-core in {folder.name}", library.exists()),
        )
        if not found
    ]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: ./run tests installs them where it may")
    return node, library, chromium


def drive(address, phase):
    node, library, chromium = tools()
    pictures = [os.environ["MOMOSTREAM_PICTURES"]] if "MOMOSTREAM_PICTURES" in os.environ else []
    command = [node, Path(__file__).with_name("page.mjs"), library, chromium, address, phase, *pictures]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


REGRESSOR = """
[serve]
address = "127.0.0.1:0"
[feeds.south]
key = "turbine"
time = "time"
targets = ["power"]
inputs = ["wind", "temperature"]
"""


def test_experts_and_inputs_of_a_regressor_are_shown(tmp_path):
    tools()
    with running(tmp_path, REGRESSOR) as (client, state):
        rows = [row(n) for n in range(1, 71)]
        push(client, [each | {"wind": each["power"] ** 0.5} for each in rows], state, "south")
        drive(str(client.base_url), "shares")


ONE = """
[serve]
address = "127.0.0.1:0"
[feeds.south]
title = "One"
time = "time"
targets = ["power"]
horizon = 5
[feeds.other]
targets = ["power"]
horizon = 5
"""


def test_a_feed_of_one_machine_is_that_machine(tmp_path):
    tools()
    with running(tmp_path, ONE) as (client, state):
        push(client, [row(n) for n in range(1, 41)], state, "south")
        drive(str(client.base_url), "alone")


def test_people_can_watch_and_acknowledge(tmp_path):
    tools()
    with running(tmp_path) as (client, state):
        for n in range(1, 41):
            push(client, [row(n, key) for key in ("T1", "T2", "T10")], state)
        drive(str(client.base_url), "first")
    with running(tmp_path) as (client, _):
        drive(str(client.base_url), "again")
