"""The commands `serve` and `init`, and the option `--serve`, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from .farms import row, wait_for


def momostream(*arguments, **options):
    command = [sys.executable, "-m", "momostream", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture
def feed(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [row(n, key) for n in range(1, 41) for key in ("T1", "T2")]
    names = ["turbine", "time", "power", "temperature"]
    path.write_text(
        "\n".join([",".join(names), *(",".join(str(each[name]) for name in names) for each in rows)]) + "\n"
    )
    return path


def test_init_then_serve_a_file(feed, tmp_path):
    config = tmp_path / "farm.toml"
    done = momostream("init", feed, "-o", config, "--horizon", 4)
    assert (done.returncode, 'key = "turbine"' in config.read_text()) == (0, True), done.stderr
    again = momostream("init", feed, "-o", config)
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    assert "no mistakes found" in momostream("serve", config, "--check").stdout
    command = [sys.executable, "-m", "momostream", "serve", config, "--address", "127.0.0.1:0", "--json-log"]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            wait_for(lambda: "page" in (tmp_path / "log").read_text())
            address = json.loads((tmp_path / "log").read_text().splitlines()[0])["message"].split()[-1]
            with httpx.Client(base_url=address, timeout=30) as client:
                wait_for(lambda: client.get("/feeds").json()[0].get("rows") == 80)
                assert client.get("/feeds/rows/machines").json()["total"] == 2
                assert client.post("/feeds/rows/rows", content=b"{}").status_code == 405
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    said = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert all({"time", "level", "message"} <= each.keys() for each in said)


def test_run_serves_its_page_while_it_lasts(feed, tmp_path):
    command = [sys.executable, "-m", "momostream", "run", feed, "--key", "turbine", "-t", "power", "-n", "4"]
    command += ["--follow", "--store", tmp_path / "rows.db", "--serve", "127.0.0.1:0"]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            wait_for(lambda: "page: " in (tmp_path / "log").read_text())
            address = (tmp_path / "log").read_text().partition("page: ")[2].split()[0]
            with httpx.Client(base_url=address, timeout=30) as client:
                wait_for(lambda: client.get("/feeds").json()[0].get("rows") == 80)
                name = client.get("/feeds").json()[0]["name"]
                assert client.get(f"/feeds/{name}/forecasts").json()[0]["key"] == "T1"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[serve]\naddress = "0.0.0.0:0"\n[feeds.a]\ntargets = ["x"]\nhorizon = 2', "there is no token"),
        ("[feeds.a]\ntargets = [1]\nhorizon = 2", "line 2: feeds.a.targets: expected a list of different names"),
        ('[feeds.a]\nsource = "nothing.csv"\nkey = "k"\ntargets = ["k"]\nhorizon = 2', "line 3: feeds.a.key"),
        ('[feeds.a]\ntargets = ["x"]\nhorizon = 2\n[feeds.a.model]\nspeed = 9', "has no parameter 'speed'"),
    ],
)
def test_mistakes_end_at_once(tmp_path, text, message):
    (tmp_path / "farm.toml").write_text(text)
    # An empty cache: the kernels would take a minute to compile, so mistakes must be found before they are imported.
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = momostream("serve", tmp_path / "farm.toml", env=environment)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "cache").exists()


def test_a_process_whose_feeds_have_all_failed_ends(tmp_path):
    config = '[serve]\naddress = "127.0.0.1:0"\n[feeds.a]\ntargets = ["x"]\nhorizon = 2\n[feeds.a.model]\nlags = -3'
    (tmp_path / "farm.toml").write_text(config)
    done = momostream("serve", tmp_path / "farm.toml")
    assert (done.returncode, "lags" in done.stderr) == (1, True), done.stderr
