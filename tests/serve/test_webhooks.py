"""Webhooks: every alarm in order, signed, again until it arrives, and no further after a restart."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from momostream.serve.webhooks import Webhook, post_json, signature
from momostream.storage.store import Output, Store


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "north.db"
    add(path, 3)
    return path


def add(path, n, first=1):
    with Store(path) as store:
        alarms = [Output("T1", number, json.dumps({"key": "T1", "row": number})) for number in range(first, first + n)]
        store.commit(alarms=alarms)


def hook(path, post, **options):
    return Webhook("north", path, path.with_name("north.db-page"), "http://host/alarms", post=post, **options)


def test_alarms_arrive_once_in_order_and_signed(store):
    sent = []
    webhook = hook(
        store, lambda url, body, headers, timeout: sent.append((json.loads(body), headers, body)), secret="s"
    )
    assert webhook.deliver()
    assert [(each["number"], each["alarm"]["row"]) for each, _, _ in sent] == [(1, 1), (2, 2), (3, 3)]
    assert all(headers["x-momostream-signature"] == signature("s", body) for _, headers, body in sent)
    assert hook(store, pytest.fail).deliver()
    add(store, 1, 4)
    again = []
    assert hook(store, lambda url, body, *_: again.append(json.loads(body)["number"])).deliver()
    assert again == [4]


def test_an_address_that_is_away_gets_the_rest_later(store):
    arrived, away = [], [False, True, True, False]

    def post(url, body, headers, timeout):
        if away and away.pop(0):
            raise ConnectionRefusedError("away")
        arrived.append(json.loads(body)["number"])

    webhook = hook(store, post)
    assert [webhook.deliver() for _ in range(3)] == [False, False, True]
    assert arrived == [1, 2, 3]
    assert webhook._attempts.is_due()


class Receiver(BaseHTTPRequestHandler):
    statuses: list[int] = []
    bodies: list[bytes] = []

    def do_POST(self):  # noqa: N802 - the name that the base class calls
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(self.statuses.pop(0) if self.statuses else 204)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("status", [302, 404, 500])
def test_answers_other_than_success_are_failures(status):
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        Receiver.statuses[:] = [status]
        url = f"http://127.0.0.1:{server.server_port}/alarms"
        with pytest.raises(OSError) as caught:
            post_json(url, b"{}", {}, 5.0)
        caught.value.close()
        post_json(url, b'{"a":1}', {}, 5.0)
        assert Receiver.bodies[-1] == b'{"a":1}'
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
