"""A small farm for tests: its configuration, rows, and the server around it."""

from __future__ import annotations

import json
import time as clock
from contextlib import contextmanager

import httpx

from benchmarks.tools.serve_kills import KILL_FARM, turbine_row
from momostream.cli.farm_checks import tls_of
from momostream.cli.serve import request_for
from momostream.serve.config import read_config_text
from momostream.serve.security import Tokens
from momostream.serve.server import FeedWorker, PageServer
from momostream.serve.state import FeedState

FARM = KILL_FARM.replace("PORT", "0")
row = turbine_row


def lines(rows):
    return "\n".join(map(json.dumps, rows)).encode()


@contextmanager
def running(folder, text=FARM, tokens=None, verify=True):
    """A client of a farm whose feed runs in a thread."""
    farm = read_config_text(text, folder=folder)
    states = [FeedState(feed, farm.serve.history) for feed in farm.feeds]
    workers = []
    for feed, state in zip(farm.feeds, states, strict=True):
        request = request_for(farm, feed)
        workers.append(FeedWorker(state, request.opener(farm), folder / f"{feed.name}.db-page"))
        workers[-1].start()
    server = PageServer(states, farm.serve, tokens or Tokens(), tls_of(farm))
    server.start()
    try:
        wait_for(lambda: all(state.status != "starting" for state in states), 300.0)
        with httpx.Client(base_url=server.address, timeout=30.0, verify=verify) as client:
            yield client, states[0]
    finally:
        server.stop()
        for worker in workers:
            worker.stop()
        assert all(worker.join(30.0) for worker in workers)


def wait_for(condition, seconds=120.0):
    until = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < until, "waited in vain"
        clock.sleep(0.01)


def push(client, rows, state, feed="north"):
    """Push rows and wait until they are learnt."""
    n_before = state.n_rows
    answer = client.post(f"/feeds/{feed}/rows", content=lines(rows))
    assert answer.status_code == 202, answer.text
    wait_for(lambda: state.n_rows >= n_before + answer.json()["accepted"])
    return answer.json()
