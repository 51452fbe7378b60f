"""Alarms of a run that is killed again and again (SIGKILL) are those of an undisturbed one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from momostream.storage.store import Store, StoreError
from tests.cli.commands import QUICK, call, start, wait_for

N_ROWS, KEYS = 300, ("T1", "T2")
COMMAND = [
    "run", "farm.csv", "--key", "turbine", "-t", "power", "-t", "wind", "--horizon", "1h", *QUICK, "--alarms", "store",
    "--false-alarms", "1 per month", "--alarm", "power < 300 within 1h", "--commit-every", "20",
]  # fmt: skip


@pytest.fixture
def farm(tmp_path, monkeypatch):
    """Two turbines; the second one trips for five hours, the first one slows down and recovers."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["time,turbine,wind,power"]
    for n in range(N_ROWS):
        at = datetime(2024, 3, 1) + n * timedelta(minutes=10)
        for key in KEYS:
            wind = 8 + np.sin(n / 20) + 0.2 * rng.normal()
            if key == "T1":
                wind -= np.interp(n, [170, 200, 230, 260], [0.0, 7.0, 7.0, 0.0])
            power = 0.0 if key == "T2" and 200 <= n < 230 else 100 * wind + 10 * rng.normal()
            lines.append(f"{at.isoformat()},{key},{wind:.3f},{power:.3f}")
    Path("farm.csv").write_text("\n".join(lines) + "\n")


def committed(store):
    """Rows up to the last commit; 0 before there is a store."""
    try:
        with Store(store, read_only=True) as reader:
            position = reader.source("farm.csv")
            return 0 if position is None else position.number
    except (StoreError, FileNotFoundError):
        return 0


def alarms(store):
    with Store(store, read_only=True) as reader:
        return [json.loads(line.text) for _, line in reader.alarms()]


def test_killed_runs_have_the_same_alarms(farm):
    call(*COMMAND, "--store", "whole.db")
    whole = alarms("whole.db")
    assert {"columns" in line for line in whole} == {True, False} and any(not line["open"] for line in whole)
    where = []
    # Before the trip, while both kinds of alarms last, and after.
    for target in (150, 415, 455):
        # It follows the file, so that it never ends by itself.
        process = start(*COMMAND, "--store", "killed.db", "--follow", "--quiet")
        wait_for(lambda target=target: committed("killed.db") >= target)
        process.kill()
        process.wait(60)
        where.append(committed("killed.db"))
    assert where == sorted(where) and where[0] < 2 * N_ROWS
    call(*COMMAND, "--store", "killed.db")
    assert alarms("killed.db") == whole
