"""Slow clients, clients that never read, rows out of order, and a store that another process has."""

from __future__ import annotations

import socket
from contextlib import closing
from urllib.parse import urlsplit

from momostream.serve import events, server
from momostream.storage.store import Store

from .farms import FARM, lines, push, row, running, wait_for


def connect(client, buffer=None):
    """A bare connection to the server."""
    address = urlsplit(str(client.base_url))
    found = socket.socket()
    if buffer is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    found.settimeout(30.0)
    found.connect((address.hostname, address.port))
    return found, f"{address.hostname}:{address.port}"


def test_a_body_that_does_not_come_in_time(tmp_path):
    with running(tmp_path, FARM.replace("[feeds", "timeout = 0.3\n[feeds")) as (client, state):
        slow, host = connect(client)
        with closing(slow):
            head = f"POST /feeds/north/rows HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n"
            slow.sendall(head.encode() + lines([row(1)])[:20])
            assert b" 408 " in slow.recv(4096).splitlines()[0]
        assert state.n_rows == 0
        push(client, [row(1)], state)


def test_a_connection_without_a_request_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.3)
    with running(tmp_path) as (client, _):
        silent, _ = connect(client)
        with closing(silent):
            silent.sendall(b"GET / HT")
            # Nothing but the end of the connection.
            assert silent.recv(4096) == b""


def test_a_page_that_never_reads_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "PATIENCE", 0.5)
    monkeypatch.setattr(events, "TICK", 0.02)
    with running(tmp_path) as (client, state):
        deaf, host = connect(client, buffer=2048)
        with closing(deaf):
            deaf.sendall(f"GET /events?feed=north HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            wait_for(lambda: "momostream_pages 1" in client.get("/metrics").text)
            n = 0

            def is_dropped():
                nonlocal n
                n += 1
                push(client, [row(n, f"T{k}") for k in range(60)], state)
                return "momostream_pages 0" in client.get("/metrics").text

            wait_for(is_dropped, 60.0)
        assert state.status == "running"


def test_rows_out_of_order(tmp_path):
    """By their numbers they are new, by their times late: the model rejects them, and the others are learnt."""
    with running(tmp_path) as (client, state):
        late = row(3) | {"n": 6}
        push(client, [row(n) for n in range(1, 6)], state)
        answer = client.post("/feeds/north/rows", content=lines([late, row(7)]))
        assert answer.json()["accepted"] == 2
        wait_for(lambda: state.n_rows == 6)
        # A number that is not after the last one has come before.
        assert client.post("/feeds/north/rows", content=lines([row(4), row(7)])).json()["repeated"] == 2
    with Store(tmp_path / "north.db", read_only=True) as store:
        assert store.rows() == {"T1": 6}
        ((_, letter),) = store.dead()
        assert "time must increase" in letter.reason and '"n"' not in letter.reason


def test_a_store_that_is_open_elsewhere(tmp_path):
    with Store(tmp_path / "north.db"), running(tmp_path) as (client, state):
        assert state.status == "failed" and "has it open for writing" in state.problem
        assert client.get("/readyz").status_code == 503
        answer = client.post("/feeds/north/rows", content=lines([row(1)]))
        assert answer.status_code == 503
