"""Lines over HTTP as InfluxDB's line protocol, against a small server on the loopback."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from momostream.feeds import influx
from momostream.feeds.influx import InfluxOutlet
from momostream.feeds.line_protocol import read_line_protocol
from momostream.feeds.outlets import open_outlet
from momostream.feeds.source import FeedError
from tests.cli.commands import feed_text
from tests.runs.test_broker_runs import momostream

TOKEN = "rosebud-token-4711"


class Influx:
    """Keeps points by measurement, tags and time, as InfluxDB does; ``answers`` come before those of its own."""

    def __init__(self):
        self.points, self.answers, self.requests = {}, [], []
        found = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                found.requests.append((self.path, dict(self.headers), body))
                code, text = found.answers.pop(0) if found.answers else found.take(body)
                if code is None:
                    # Taken, and the answer gets lost.
                    found.take(body)
                    self.connection.close()
                    return
                self.send_response(code)
                self.send_header("location", "http://127.0.0.1:1/elsewhere")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, body):
        lines = [read_line_protocol(line) for line in body.splitlines()]
        if any("bad" in tags.values() for _, tags, _, _ in lines):
            return 400, '{"code": "invalid", "message": "a point is\nbad"}'
        for measurement, tags, fields, stamp in lines:
            self.points[measurement, tuple(tags.items()), stamp] = fields
        return 204, ""

    def url(self, **settings):
        asked = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"influx://127.0.0.1:{self.port}/api/v2/write?org=plant&bucket=farm{'&' if asked else ''}{asked}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(opened):
    return opened(Influx())


def line(number, key="T1", steps=2):
    ahead = [{"time": f"2024-03-01T00:{step:02d}:00", "power": {"mean": number, "lower": 0.5, "upper": None}} for step in range(1, steps + 1)]  # fmt: skip # noqa: E501
    return number, key, json.dumps({"turbine": key, "row": 100 + number, "steps": ahead})


def numbers(server):
    return sorted({fields["number"] for fields in server.points.values()})


def until_sent(outlet, lines, limit=120.0):
    deadline = time.monotonic() + limit
    while outlet.send(lines) < lines[-1][0]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_forecasts_become_points(server, monkeypatch):
    monkeypatch.setenv("PLANT_TOKEN", TOKEN)
    outlet = open_outlet(server.url(token_env="PLANT_TOKEN"), "outputs", "a")
    assert outlet.send([line(1), line(2, "T 2,=\\")]) == 2
    assert outlet.name == f"influx://127.0.0.1:{server.port}/api/v2/write"
    ((path, headers, _),) = server.requests
    assert parse_qs(urlsplit(path).query) == {"org": ["plant"], "bucket": ["farm"], "precision": ["us"]}
    assert headers["Authorization"] == f"Token {TOKEN}"
    at = 1709251200000000
    assert server.points == {
        ("forecasts", (("key", key), ("step", str(step)), ("target", "power")), at + step * 60_000_000): {
            "mean": float(number), "lower": 0.5, "number": number, "row": 100 + number,
        }
        for number, key in ((1, "T1"), (2, "T 2,=/"))
        for step in (1, 2)
    }  # fmt: skip


def test_alarms_become_points(server):
    outlet = open_outlet(server.url(measurement="north"), "alarms", "a")
    alarm = {"key": "T1", "row": 5, "time": "2024-03-01T01:00:00+01:00", "target": "power", "value": 48, "lower": None}
    rule = {"row": 6, "time": "2024-03-01", "alarm": 'power < "2"', "probability": 0.5}
    assert outlet.send([(1, "T1", json.dumps(alarm)), (2, "model", json.dumps(rule))]) == 2
    assert server.points == {
        ("north", (("key", "T1"), ("target", "power")), 1709251200000000): {
            "value": 48.0, "number": 1, "text": json.dumps(alarm),
        },
        ("north", (("alarm", 'power < "2"'),), 1709251200000000): {
            "probability": 0.5, "number": 2, "text": json.dumps(rule),
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ((503, "busy"), "it answers with code 503 (busy)"),
        ((429, ""), "it answers with code 429"),
        ((507, ""), "the disk of the server is full"),
        ((None, ""), "the server cannot be reached: "),
    ],
)
def test_what_passes_is_tried_again_and_each_point_is_there_once(server, answer, what):
    troubles = []
    outlet = InfluxOutlet(server.url(), "outputs", on_trouble=troubles.append)
    server.answers = [answer] * 2
    sent = [line(number) for number in range(1, 6)]
    assert outlet.send(sent) == 0 and outlet.send(sent) == 0
    until_sent(outlet, sent)
    assert len(server.requests) == 3 and len(server.points) == 2
    assert len(troubles) == 1 and what in troubles[0] and troubles[0].endswith("; trying again")


def test_a_server_that_is_away_or_silent(server, opened):
    troubles = []
    away = InfluxOutlet("influx://127.0.0.1:1/write", "outputs", on_trouble=troubles.append)
    assert away.send([line(1)]) == 0 and "the server cannot be reached: Connection refused" in troubles[0]
    is_over = threading.Event()
    server.take = lambda body: (is_over.wait(120.0), (204, ""))[1]
    silent = InfluxOutlet(server.url(), "outputs", patience=0.2, on_trouble=troubles.append)
    assert silent.send([line(1)]) == 0 and "the server cannot be reached: timed out" in troubles[1]
    is_over.set()


def test_batches_are_bounded(server, monkeypatch):
    monkeypatch.setattr(influx, "MOST_BYTES", 2000)
    outlet = InfluxOutlet(server.url(), "outputs")
    assert outlet.send([line(number, f"T{number}") for number in range(1, 201)]) == 200
    assert len(server.requests) > 5 and max(len(body) for _, _, body in server.requests) <= 2000
    assert numbers(server) == list(range(1, 201))
    # What has arrived before the server went away is not sent again.
    server.answers = [(204, ""), (503, "")]
    last = outlet.send([line(number, f"T{number}") for number in range(201, 401)])
    assert 201 <= last < 400


def test_a_bad_point_does_not_take_others_along(server):
    troubles = []
    outlet = InfluxOutlet(server.url(), "outputs", on_trouble=troubles.append)
    sent = [line(number, "bad" if number in (7, 30) else f"T{number}") for number in range(1, 41)]
    assert outlet.send(sent) == 40 and outlet.n_rejected == 2
    assert numbers(server) == [number for number in range(1, 41) if number not in (7, 30)]
    said = 'it answers with code 400 ({"code": "invalid", "message": "a point is bad"})'
    assert troubles == [f"{outlet.name}: the server does not accept all points: {said}"]
    with pytest.raises(FeedError, match="a point is bad"):
        outlet.send([line(41, "bad"), line(42, "bad")])


@pytest.mark.parametrize("code", [301, 401, 403, 404])
def test_what_does_not_pass_is_an_error(server, code, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    outlet = InfluxOutlet(server.url(token_file=tmp_path / "token"), "outputs")
    server.answers = [(code, f"not with {TOKEN}")]
    with pytest.raises(FeedError, match=rf"it answers with code {code} \(not with \*\*\*\)"):
        outlet.send([line(1)])


def test_addresses_are_checked(monkeypatch):
    for url, what in [
        ("influx:///write", "has the form"),
        ("influx://ann:secret@h/write", "has the form"),
        ("influx://h:port/write", "has the form"),
        ("influx://h/write?token_env=NOTHING_HERE", "NOTHING_HERE, which token_env names, is not set"),
        ("influxs://h/write?ca=/nowhere.pem", "does not exist"),
    ]:
        with pytest.raises(ValueError, match=what) as error:
            open_outlet(url, "outputs", "a")
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="dead letters have no times"):
        open_outlet("influx://h/write", "dead", "a")
    monkeypatch.setenv("MOMOSTREAM_INFLUX_TOKEN", TOKEN)
    with pytest.raises(ValueError, match="a token must not be sent without TLS") as error:
        open_outlet("influx://h/write", "outputs", "a")
    assert TOKEN not in str(error.value)
    for url in ("influx://h/write?insecure=true", "influxs://h/write", "influx://localhost/write"):
        open_outlet(url, "outputs", "a")
    monkeypatch.setenv("MOMOSTREAM_INFLUX_TOKEN", "a\nb")
    with pytest.raises(ValueError, match="characters that a header cannot hold"):
        open_outlet("influxs://h/write", "outputs", "a")


def test_rows_without_dates_are_an_error(server):
    text = json.dumps({"row": 1, "time": 5, "power": {"mean": 1, "lower": 0, "upper": 2}})
    with pytest.raises(FeedError, match="times must be dates"):
        InfluxOutlet(server.url(), "outputs").send([(1, None, text)])


@pytest.mark.system
def test_a_run_into_influx(server, tmp_path):
    (tmp_path / "turbine.csv").write_text(feed_text(40))
    command = [
        *("run", tmp_path / "turbine.csv", "-t", "power", "--horizon", "2", "--store", tmp_path / "run.db"),
        *("-o", server.url(), "--set", "experts=('last value', 'own lags')", "--quiet"),
    ]
    server.answers = [(503, "busy")]
    momostream(*command, "--limit", "20")
    momostream(*command)
    # The first three rows show nothing of the step, so their forecasts have no times.
    assert sorted({fields["row"] for fields in server.points.values()}) == list(range(4, 41))
    assert len(server.points) == 74 and momostream("read", tmp_path / "run.db").stdout == ""
