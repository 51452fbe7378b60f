"""`momostream serve` is killed while rows are pushed: each row is learnt once, and nothing differs from a quiet run."""

from __future__ import annotations

import os

import pytest

from benchmarks.tools.postgres import missing_postgres
from benchmarks.tools.serve_kills import kill_database_trial, kill_trial

# More in `python -m benchmarks.serve kills`.
N_KILLS = int(os.environ.get("MOMOSTREAM_KILLS", "2"))


def test_kills_lose_and_double_nothing(tmp_path):
    found = kill_trial(tmp_path, N_KILLS)
    assert found["forecasts"] == found["rows"] and found["alarms"], "a quiet run has forecasts and alarms"
    assert found["each_row_once"] and found["same_forecasts"] and found["same_alarms"] and found["same"]


@pytest.mark.skipif(bool(missing_postgres()), reason=str(missing_postgres()))
def test_kills_of_server_and_database_lose_and_double_nothing(tmp_path):
    found = kill_database_trial(tmp_path, N_KILLS)
    assert found["forecasts"] == found["rows"] and found["alarms"], "a quiet run has forecasts and alarms"
    assert found["each_row_once"] and found["same_forecasts"] and found["same_alarms"] and found["same"]
