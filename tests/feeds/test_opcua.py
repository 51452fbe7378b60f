"""OPC UA subscriptions, against asyncua's own server in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.tools.opcua import PASSWORD, USER, OpcUaServer, missing_opcua
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.opcua import OpcUaFeed
from momostream.feeds.source import FeedError
from tests.feeds.certificates import needs_openssl
from tests.feeds.messaging import LIMIT, take

pytestmark = pytest.mark.system
needs_opcua = pytest.mark.skipif(bool(missing_opcua()), reason=str(missing_opcua()))
COLUMNS = ["power", "wind"]
QUICK = {"tick": "1s", "wait": "0.5s", "interval": "0.1s"}


@pytest.fixture(scope="module")
def server():
    with OpcUaServer([*COLUMNS, "state"], ["T1", "T2"], history=True) as found:
        yield found


def start_time(ahead=1):
    """A full tick after all that tests before have written."""
    now = datetime.now(UTC) + timedelta(hours=ahead)
    return now.replace(second=0, microsecond=0)


def begin(feed, seconds=0.7, machines=()):
    """Let the subscription begin, and take the first values of the nodes, those of more machines among them."""
    until, events = time.monotonic() + seconds, feed.events()
    found = []
    while time.monotonic() < until or not has_begun(feed, machines):
        assert time.monotonic() < until + LIMIT
        if (event := next(events)) is not None:
            found.append(event)
    return found


def has_begun(feed, machines):
    """Whether a first value of each node has come and was taken."""
    nodes = {(key, column) for _, key, column in feed._nodes.values()}
    return (
        nodes | {(key, column) for key in machines for column in COLUMNS} <= set(feed._last) and feed._arrived.empty()
    )


def at(start, tenths):
    return start + timedelta(seconds=tenths / 10)


def write(server, start, tenths, machine="T1"):
    """Values at tenths of seconds; a tick is ten of them."""
    for tenth in tenths:
        for column in COLUMNS:
            server.write(machine, column, at(start, tenth), tenth)


@needs_opcua
def test_values_become_rows(server, opened):
    feed = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine"))
    assert begin(feed) == []
    start = start_time()
    for second in (1, 5, 11, 21):
        for machine in ("T1", "T2"):
            write(server, start, [second], machine)
    rows = take(feed, 4)
    assert sorted((row.key, row.time, row.values["power"], row.values["wind"]) for row in rows) == [
        (machine, at(start, tick), value, value) for machine in ("T1", "T2") for tick, value in ((10, 5.0), (20, 11.0))
    ]
    assert [row.number for row in rows] == [1, 2, 3, 4] and feed.time == "time"
    assert feed.name == f"opc.tcp://127.0.0.1:{server.port}/Plant/{{turbine}}/Sensors/{{column}}"


@needs_opcua
def test_held_missing_and_bad_values(server, opened):
    feed = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine"))
    start = start_time(2)
    write(server, start, [-5])
    begin(feed)
    # The wind is only known from before, then its sensor fails.
    server.write("T1", "power", at(start, 5), 1)
    server.write("T1", "power", at(start, 15), 2)
    server.write("T1", "wind", at(start, 16), None)
    server.write("T1", "power", at(start, 25), 3)
    assert [row.values for row in take(feed, 3)] == [{"power": 1.0, "wind": -5.0}, {"power": 2.0}, {"power": 3.0}]
    server.write("T1", "wind", at(start, 17), 4.0)
    (late,) = take(feed, 1)
    assert isinstance(late, Rejected) and late.key == "T1" and "came too late" in late.reason


@needs_opcua
def test_what_happened_while_away_is_read_from_the_history(server, opened):
    feed = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine"))
    begin(feed)
    start = start_time(3)
    write(server, start, [5, 15])
    assert [row.values["power"] for row in take(feed, 2)] == [5.0, 15.0]
    position = json.loads(json.dumps(feed.position))
    # Taken after the commit, and thus not known to the next run.
    write(server, start, [25])
    assert [row.values["power"] for row in take(feed, 1)] == [25.0]
    feed.close()
    write(server, start, range(35, 800, 20))
    troubles = []
    again = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine", on_trouble=troubles.append))
    again.seek(position)
    write(server, start, [805])
    rows = take(again, 40)
    assert [(row.number, row.values) for row in rows] == [
        (number, {"power": float(tenth), "wind": float(tenth)})
        for number, tenth in enumerate([25, *range(35, 800, 20)], 3)
    ]
    begin(again, 0.3)
    assert again.n_gaps == 0 and len(troubles) == 1 and "were read from the history of the server" in troubles[0]


@needs_opcua
def test_a_server_that_is_killed_comes_back_with_a_gap(opened):
    troubles = []
    with OpcUaServer(COLUMNS, ["T1"]) as server:
        feed = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine", on_trouble=troubles.append))
        begin(feed)
        start = start_time()
        write(server, start, [5, 15])
        assert len(take(feed, 2)) == 2
        server.kill()
        deadline = time.monotonic() + 3 * LIMIT
        while not troubles:
            begin(feed, 0.2)
            assert time.monotonic() < deadline
        assert "the connection to the server is lost" in troubles[0] and len(troubles) == 1
        server.start()
        while feed.n_gaps == 0:
            begin(feed, 0.2)
            assert time.monotonic() < deadline
        begin(feed, 1.0)
        assert "may be missing: the server keeps no history" in troubles[1]
        write(server, start, [35, 45])
        rows = [event for event in take(feed, 2) if isinstance(event, Row)]
    assert [(row.number, row.values["power"]) for row in rows] == [(3, 35.0), (4, 45.0)]


@needs_opcua
def test_new_machines_are_found(server, opened, monkeypatch):
    monkeypatch.setattr("momostream.feeds.opcua.LOOK", 0.2)
    feed = opened(OpcUaFeed(server.url(**QUICK), COLUMNS, key="turbine"))
    begin(feed)
    start = start_time(5)
    write(server, start, [5], "T9")
    begin(feed, machines=["T9"])
    write(server, start, [15, 25], "T9")
    rows = take(feed, 1)
    assert rows[0].key == "T9" and rows[0].values == {"power": 15.0, "wind": 15.0}


@needs_opcua
def test_logins(opened, tmp_path):
    (tmp_path / "secret").write_text(PASSWORD)
    with OpcUaServer(COLUMNS, ["T1"], login=True) as server:
        url = server.url(user=f"{USER}@", password_file=str(tmp_path / "secret"))
        opened(OpcUaFeed(url, COLUMNS, key="turbine"))
        (tmp_path / "secret").write_text("not-the-password")
        with pytest.raises(FeedError, match="the server rejects this client: BadUserAccessDenied") as error:
            OpcUaFeed(url, COLUMNS, key="turbine", patience=5.0)
        assert "not-the-password" not in str(error.value)


@needs_opcua
@needs_openssl
def test_encrypted_connections(opened, tmp_path):
    for name in ("server", "client"):
        more = f"subjectAltName=URI:urn:momostream:{name},DNS:localhost,IP:127.0.0.1"
        options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", more]
        files = ["-keyout", tmp_path / f"{name}-key.pem", "-out", tmp_path / f"{name}.pem"]
        subprocess.run(["openssl", "req", "-x509", *options, *files], check=True, capture_output=True)
    # Whatever the file is called.
    key = (tmp_path / "client-key.pem").rename(tmp_path / "client.key")
    (tmp_path / "secret").write_text(PASSWORD)
    secure = {
        "policy": "Basic256Sha256", "cert": str(tmp_path / "client.pem"), "key": str(key),
        "server_cert": str(tmp_path / "server.pem"), "password_file": str(tmp_path / "secret"),
    }  # fmt: skip
    with OpcUaServer(COLUMNS, ["T1"], login=True, certificates=str(tmp_path)) as server:
        feed = opened(OpcUaFeed(server.url(user=f"{USER}@", **QUICK, **secure), COLUMNS, key="turbine"))
        begin(feed)
        write(server, start_time(), [5, 15, 25])
        assert [row.values["power"] for row in take(feed, 2)] == [5.0, 15.0]
        another = secure | {"server_cert": secure["cert"]}
        for wrong, what in [
            (another, "the server cannot be reached"),
            ({}, "the server cannot be reached: No matching endpoints"),
            (secure | {"policy": "Basic1"}, "unknown policy or mode"),
            (secure | {"key": secure["password_file"]}, "do not fit, or are encrypted"),
        ]:
            with pytest.raises(FeedError, match=what):
                OpcUaFeed(server.url(user=f"{USER}@", **wrong), COLUMNS, key="turbine", patience=0.1)


@needs_opcua
def test_errors(server):
    with pytest.raises(FeedError, match="there are no such nodes: the folder Objects has .*'Plant'"):
        OpcUaFeed(server.url("Plant/{turbine}/Sensor/{column}"), COLUMNS)
    with pytest.raises(FeedError, match="the server cannot be reached: "):
        OpcUaFeed("opc.tcp://127.0.0.1:1/?nodes={column}", COLUMNS, patience=0.5)
    for url, what in [
        ("opc.tcp://h:4840/", "has the form"),
        ("opc.tcp://ann:secret@h:port/?nodes={column}", "has the form"),
        ("opc.tcp://ann:secret@h/?nodes={column}", "a password must not be sent in the clear"),
        ("opc.tcp://h/?nodes={column}&tik=5s", "unknown setting tik"),
        ("opc.tcp://h/?nodes={column}&tick=soon", "not a span"),
        ("opc.tcp://h/?nodes=Plant/power", "must be a path with {column}"),
        ("opc.tcp://h/?nodes={column}&policy=Basic256Sha256", "policy needs cert and key"),
    ]:
        with pytest.raises(ValueError, match=what) as error:
            OpcUaFeed(url, COLUMNS)
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="the key 'machine' is not in nodes"):
        OpcUaFeed(server.url(), COLUMNS, key="machine")


def test_a_missing_package_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "asyncua"] or ["asyncua"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"pip install 'momostream\[opcua\]'"):
        OpcUaFeed("opc.tcp://h/?nodes={column}", ["power"])


@needs_opcua
def test_a_run_over_opc_ua(server, tmp_path):
    url = server.url(**QUICK)
    command = [sys.executable, "-m", "momostream", "run", url, "--key", "turbine", "-t", "power", "-i", "wind"]
    command += ["--horizon", "2", "--set", "experts=('last value', 'own lags')", "-o", "out.jsonl", "--store", "run.db"]
    run = subprocess.Popen([*command, "--limit", "6"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    # Its first values are those of its subscription: wait until that is there.
    deadline, start, tenth = time.monotonic() + 3 * LIMIT, start_time(8), 5
    while run.poll() is None:
        assert time.monotonic() < deadline
        for machine in ("T1", "T2"):
            write(server, start, [tenth], machine)
        tenth += 10
        time.sleep(0.1)
    assert run.returncode == 0, run.stderr.read()
    run.stderr.close()
    records = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(records) == 6 and {record["turbine"] for record in records} == {"T1", "T2"}
    refused = subprocess.run([*command, "--sequence", "n"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 1 and "--sequence works with mqtt:// feeds only" in refused.stderr
    refused = subprocess.run(
        [*command[:4], url.replace("//", "//ann:secret@"), *command[5:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 1 and "contains a password" in refused.stderr and "secret" not in refused.stderr
