"""The command as a process: signals, pipes, files that grow."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from momostream.storage.store import Store
from tests.cli.commands import (
    BY_TURBINE,
    FORECAST,
    SOFT,
    call,
    farm_text,
    feed_text,
    lines_of,
    load_from,
    models_in,
    rows_of,
    start,
    wait_for,
)


def test_a_closed_pipe_is_not_an_error(turbine):
    text = feed_text(3000)
    process = start(
        "run", "-", "-t", "power", "-i", "wind", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(text[: len(text) // 4].encode())
    process.stdin.flush()
    first = [process.stdout.readline() for _ in range(3)]
    process.stdout.close()
    with suppress(BrokenPipeError):
        process.stdin.write(text[len(text) // 4 :].encode())
    with suppress(BrokenPipeError):
        process.stdin.close()
    told = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0
    assert first[1].startswith(b"2,2024-03-01T00:10:00,") and "Traceback" not in told and "Error" not in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_commits_and_reports_it(turbine, number):
    """While it waits for a row that does not come."""
    command = ["run", "-", *SOFT, "-o", "out.csv", "--store", "run.db"]
    process = start(*command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(feed_text(40).encode())
    process.stdin.flush()
    # While no rows arrive, earlier rows are committed soon.
    wait_for(lambda: Path("out.csv").exists() and len(lines_of("out.csv")) == 40)
    process.send_signal(number)
    told = process.communicate(timeout=600)[1].decode()
    # A service manager that stops a run by SIGTERM shall not see a failure.
    assert process.returncode == (0 if number == signal.SIGTERM else 130)
    assert "stopped after row 40, saved in run.db; run the same command to resume" in told
    assert load_from("run.db").n_rows == 40 and len(rows_of(Path("out.csv").read_text())) == 39


@pytest.mark.parametrize("key", [[], BY_TURBINE], ids=["one", "many"])
def test_a_killed_run_resumes_exactly(turbine, key):
    """By SIGKILL, while it works."""
    Path("long.csv").write_text(farm_text(100) if key else feed_text(300))
    command = ["run", "long.csv", *key, *FORECAST, "--commit-every", "30", "-q"]
    process = start(*command, "-o", "out.csv", "--store", "run.db")
    wait_for(lambda: Path("out.csv").exists() and Path("out.csv").stat().st_size > 20_000)
    process.kill()
    process.wait()
    with Store("run.db", read_only=True) as store:
        assert 0 < store.source("long.csv").number < 300
    call(*command, "-o", "out.csv", "--store", "run.db")
    call(*command, "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")


def test_a_file_that_grows_is_followed(turbine):
    text = feed_text(60).encode()
    lines = text.splitlines(keepends=True)
    Path("growing.csv").write_bytes(b"".join(lines[:31]))
    command = ["run", "growing.csv", *SOFT, "-o", "out.csv", "--store", "run.db"]
    process = start(*command, "--follow", stderr=subprocess.PIPE)
    wait_for(lambda: Path("out.csv").exists() and len(lines_of("out.csv")) == 30)
    with Path("growing.csv").open("ab") as file:
        # Half a line is not a row yet.
        file.write(b"".join(lines[31:51]) + lines[51][:20])
    wait_for(lambda: len(lines_of("out.csv")) == 50)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=600)[1].decode()
    assert process.returncode == 130 and "stopped after row 50, saved in run.db" in told
    Path("growing.csv").write_bytes(text)
    assert "resuming after row 50" in call(*command)[1]
    call("run", "growing.csv", *SOFT, "-o", "whole.csv")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
