"""The HTTP interface over a feed that runs: rows in, forecasts and alarms out, limits and tokens."""

from __future__ import annotations

import json

import pytest

from momostream.runs.plan import Plan
from momostream.serve.alarms import CALM_ROWS, AlarmRecord
from momostream.serve.config import FeedConfig
from momostream.serve.events import View
from momostream.serve.security import Tokens
from momostream.serve.state import MOST_ALARMS, FeedState
from momostream.storage.store import Store

from .farms import FARM, lines, push, row, running, wait_for


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    with running(tmp_path_factory.mktemp("farm")) as (client, state):
        for n in range(1, 41):
            push(client, [row(n, key) for key in ("T1", "T2", "T10")], state)
        yield client, state


def test_rows_become_forecasts(farm):
    client, _ = farm
    (found,) = client.get("/feeds/north/forecasts", params={"key": "T1", "levels": "0.1,0.5,0.9"}).json()
    power = found["targets"]["power"]
    assert len(found["time"]) == 6 and found["time"][1] - found["time"][0] == 600
    low, middle, high = power["quantiles"]
    assert all(a < b < c for a, b, c in zip(low, middle, high, strict=True))
    assert all(a < b < c for a, b, c in zip(power["lower"], power["mean"], power["upper"], strict=True))
    assert [each["key"] for each in client.get("/feeds/north/forecasts").json()] == ["T1", "T2", "T10"]


def test_history_holds_rows_and_what_was_expected(farm):
    client, _ = farm
    found = client.get("/feeds/north/history", params={"key": "T2", "limit": 5}).json()
    assert found["targets"]["power"]["value"] == pytest.approx([row(n)["power"] for n in range(36, 41)], rel=1e-5)
    power = found["targets"]["power"]
    assert all(low < mean < high for low, mean, high in zip(power["lower"], power["mean"], power["upper"], strict=True))


def test_scores_and_machines(farm):
    client, _ = farm
    found = client.get("/feeds/north/scores", params={"key": "T1"}).json()[0]["scores"]["power"]
    assert 0.0 < found["rmse"] and 0.0 < found["naive"] and 0.0 < found["coverage"] <= 1.0
    listed = client.get("/feeds/north/machines", params={"limit": 2}).json()
    assert (listed["total"], [tile["name"] for tile in listed["machines"]]) == (3, ["T1", "T2"])
    assert client.get("/feeds/north/machines", params={"search": "10"}).json()["total"] == 1


def test_risks_are_probabilities(farm):
    client, _ = farm
    ask = {"key": "T1", "target": "power"}
    sure = client.get("/feeds/north/risk", params={**ask, "below": 1000}).json()
    never = client.get("/feeds/north/risk", params={**ask, "above": 1000, "steps": 2}).json()
    assert (sure["probability"], never["probability"], len(never["by_step"])) == (1.0, 0.0, 2)
    total = client.get("/feeds/north/risk", params={"sum": "all", "target": "power", "below": 30}).json()
    assert total["machines"] == 3 and 0.0 <= total["together"] <= 1.0
    assert total["by_step"] == sorted(total["by_step"])


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/feeds/south/history", 404, "feed"),
        ("/feeds/north/history?key=T9", 404, "key"),
        ("/feeds/north/history?key=T1&limit=0", 422, "limit"),
        ("/feeds/north/history?key=T1&limit=１", 422, "limit"),
        ("/feeds/north/forecasts?levels=0.5,2", 422, "levels"),
        ("/feeds/north/machines?health=fine", 422, "health"),
        ("/feeds/north/risk?key=T1", 422, "below"),
        ("/feeds/north/risk?key=T1&below=nan", 422, "below"),
        ("/feeds/north/risk?key=T1&below=1&target=x", 422, "target"),
        ("/alarms?state=loud", 422, "state"),
        ("/events?feed=south", 404, "feed"),
    ],
)
def test_wrong_questions_name_the_field(farm, path, status, field):
    client, _ = farm
    answer = client.get(path)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


def test_bad_rows_are_rejected_with_row_and_column(farm):
    client, state = farm
    before = state.n_rows
    body = lines([row(41), row(42) | {"power": "high"}])
    answer = client.post("/feeds/north/rows", content=body)
    assert answer.status_code == 422
    assert answer.json()["rows"] == [{"row": 2, "reason": "column 'power': 'high' is text, not a number"}]
    assert state.n_rows == before


def test_bad_rows_can_be_skipped_into_dead_letters(tmp_path):
    with running(tmp_path) as (client, state):
        body = lines([row(1), row(2) | {"power": "high"}, row(3)])
        answer = client.post("/feeds/north/rows?bad_rows=skip", content=body)
        assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (202, 2, 1)
        wait_for(lambda: state.n_rows == 2)
    with Store(tmp_path / "north.db", read_only=True) as store:
        (letter,) = [letter for _, letter in store.dead()]
    assert "column 'power'" in letter.reason and json.loads(letter.row)["n"] == 2


def test_line_protocol_is_accepted(tmp_path):
    with running(tmp_path) as (client, state):
        body = "\n".join(f"farm,turbine=T1 power={n}.5,temperature=4,n={n}i {1700000000 + 600 * n}" for n in (1, 2))
        answer = client.post("/feeds/north/rows?precision=s", content=body, headers={"content-type": "text/plain"})
        assert answer.json()["accepted"] == 2
        wait_for(lambda: state.n_rows == 2)
        assert client.get("/feeds/north/history?key=T1").json()["targets"]["power"]["value"] == [1.5, 2.5]


@pytest.mark.parametrize(
    ("setting", "body", "status"),
    [
        ("max_body_mb = 0.001", b"x" * 2000, 413),
        ("max_rows = 2", lines([row(n) for n in (1, 2, 3)]), 413),
        ("", b"[" * 50_000, 422),
        ("", b'{"a":' * 50_000, 422),
        ("", b"\x00\xff", 422),
        ("", b"", 202),
    ],
)
def test_large_deep_and_empty_bodies(tmp_path, setting, body, status):
    with running(tmp_path, FARM.replace("history = 100", setting)) as (client, _):
        assert client.post("/feeds/north/rows", content=body).status_code == status


def test_an_alarm_comes_ends_and_stays_acknowledged(tmp_path):
    with running(tmp_path) as (client, state):
        for n in range(1, 41):
            push(client, [row(n)], state)
        assert client.get("/feeds/north/machines").json()["machines"][0]["health"] == "ok"
        push(client, [row(41, power=500.0)], state)
        (alarm,) = client.get("/alarms?state=open").json()["alarms"]
        assert (alarm["name"], alarm["columns"], alarm["severity"]) == ("T1", ["power"], "warning")
        assert alarm["why"].startswith("power was 500, expected ")
        assert client.get("/feeds/north/machines").json()["machines"][0]["health"] == "alarm"
        seen = client.post(f"/alarms/{alarm['id']}/acknowledge", json={"by": "Ann"}).json()
        assert seen["by"] == "Ann" and seen["acknowledged"] > 0
        for n in range(42, 42 + CALM_ROWS):
            push(client, [row(n)], state)
        assert client.get("/alarms?state=open").json()["total"] == 0
        last_row = state.n_rows
    with running(tmp_path) as (client, state):
        (again,) = client.get("/alarms").json()["alarms"]
        assert (again["by"], again["id"], again["end"] is None) == ("Ann", alarm["id"], False)
        assert client.get("/feeds/north/history?key=T1").json()["row"][-1] == last_row
        # What was shown before is shown again, until the next row brings a new forecast.
        assert client.get("/feeds/north/forecasts?key=T1").json()[0]["row"] == last_row
        assert client.get("/feeds/north/risk?key=T1&below=1").status_code == 409
        push(client, [row(60)], state)
        assert client.get("/feeds/north/risk?key=T1&below=1").status_code == 200
        missing = client.post("/alarms/nothing/acknowledge")
        assert missing.status_code == 404
        assert client.post(f"/alarms/{alarm['id']}/acknowledge", json={"by": 5}).status_code == 422


def news(view):
    return {name: json.loads(data) for name, data in view.news()}


def test_views_send_what_is_seen_and_only_news(farm):
    _, state = farm
    view = View(state, 0, 2)
    first = news(view)
    assert [tile["name"] for tile in first["tiles"]["tiles"]] == ["T1", "T2"] and first["tiles"]["total"] == 3
    assert first["overview"]["machines"] == 3
    assert news(view) == {}
    machine = View(state, 0, 0, machine=state.find(key="T2").id)
    details = news(machine)["machine"]
    assert details["whole"] and len(details["history"]["row"]) == 40
    assert len(details["forecast"]["targets"]["power"]["quantiles"]) == 4


def test_views_send_alarms_that_have_changed(tmp_path):
    def record(number, end=None):
        id = f"a{number}"
        return AlarmRecord(id, "north", "m", "T1", float(number), end, number, number, "warning", ["power"], "why")

    state = FeedState(FeedConfig("north"))
    state.plan = Plan(("power",), horizon=6)
    view = View(state)
    assert news(view)["alarms"] == {"order": [], "records": []}
    for number in range(MOST_ALARMS + 1):
        state._note_alarm(record(number))
    first = news(view)["alarms"]
    newest = [f"a{number}" for number in range(MOST_ALARMS, 0, -1)]
    assert first["order"] == newest == [each["id"] for each in first["records"]]
    # One ends: it is listed after those that are open, of which one more is shown now.
    state._note_alarm(record(7, end=8.0))
    then = news(view)["alarms"]
    assert then["order"] == [id for id in newest if id != "a7"] + ["a0"]
    assert [each["id"] for each in then["records"]] == ["a0"]
    state._note_alarm(record(9, end=9.0))
    assert [each["id"] for each in news(view)["alarms"]["records"]] == ["a9"]
    assert len(news(View(state))["alarms"]["records"]) == MOST_ALARMS
    assert state.newest_alarms() is state.newest_alarms()


def test_a_view_of_a_machine_grows_by_its_rows(tmp_path):
    with running(tmp_path) as (client, state):
        push(client, [row(1), row(2)], state)
        view = View(state, machine=state.find(key="T1").id)
        assert news(view)["machine"]["history"]["row"] == [1, 2]
        push(client, [row(3)], state)
        details = news(view)["machine"]
        assert (details["history"]["row"], details["whole"]) == ([3], False)


def test_metrics_health_and_documents(farm):
    client, state = farm
    text = client.get("/metrics").text
    assert f'momostream_rows_total{{feed="north"}} {state.n_rows}' in text
    assert f'momostream_model_bytes{{feed="north"}} {state.run.fleet.nbytes:g}' in text and state.run.fleet.nbytes > 0
    assert 'momostream_row_latency_seconds_bucket{feed="north",le="+Inf"}' in text
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    paths = client.get("/openapi.json").json()["paths"]
    docs = client.get("/docs")
    assert all(path in docs.text for path in paths) and "<script" not in docs.text
    assert client.get("/about").json()["feeds"][0]["targets"] == ["power", "temperature"]


# ---------------------------------------------------------------------- who may


TOKENS = Tokens(read="may-only-look", write="may-do-everything")


def test_tokens_are_needed_for_all_but_health(tmp_path):
    with running(tmp_path, tokens=TOKENS) as (client, _):
        assert client.get("/healthz").status_code == client.get("/").status_code == 200
        assert client.get("/feeds").status_code == 401
        read, write = ({"authorization": f"Bearer {token}"} for token in (TOKENS.read, TOKENS.write))
        assert client.get("/feeds", headers=read).status_code == 200
        assert client.post("/feeds/north/rows", content=lines([row(1)]), headers=read).status_code == 403
        assert client.post("/feeds/north/rows", content=lines([row(1)]), headers=write).status_code == 202
        assert client.get("/feeds", headers={"authorization": "Bearer guess"}).status_code == 401


def test_the_page_exchanges_a_token_for_a_cookie(tmp_path):
    with running(tmp_path, tokens=TOKENS) as (client, _):
        assert client.post("/login", json={"token": "guess"}).status_code == 401
        answer = client.post("/login", json={"token": TOKENS.read})
        assert TOKENS.read not in answer.headers["set-cookie"] and "HttpOnly" in answer.headers["set-cookie"]
        assert client.get("/about").json()["right"] == "read"
        assert client.post("/alarms/x/acknowledge").status_code == 403


def test_other_sites_other_names_and_floods(tmp_path):
    with running(tmp_path, FARM.replace("history = 100", "rate = 1.0")) as (client, _):
        assert client.get("/feeds", headers={"host": "evil.example"}).status_code == 421
        foreign = client.post("/alarms/x/acknowledge", headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        statuses = [client.get("/feeds").status_code for _ in range(12)]
        assert 200 in statuses and statuses[-1] == 429
        assert client.get("/healthz").status_code == 200


def test_headers_forbid_everything_from_elsewhere(farm):
    client, _ = farm
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_files_of_the_page_are_compressed_and_sent_once(farm):
    client, _ = farm
    first = client.get("/static/app.js", headers={"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip" and "javascript" in first.headers["content-type"]
    plain = client.get("/static/app.js", headers={"accept-encoding": "identity"})
    assert plain.content == first.content and "content-encoding" not in plain.headers
    again = client.get("/static/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/static/../api.py", "/static/%2e%2e/api.py", "/static//etc/passwd"])
def test_no_path_of_a_request_reaches_files(farm, path):
    client, _ = farm
    assert client.get(path).status_code == 404


def test_every_parameter_is_checked_even_if_it_is_not_needed(farm):
    client, _ = farm
    for query in ("precision=null", "format=xml"):
        answer = client.post(f"/feeds/north/rows?{query}", content=b"")
        assert answer.status_code == 422 and answer.json()["field"] == query.partition("=")[0]


def test_the_document_names_the_feeds(farm):
    client, _ = farm
    paths = client.get("/openapi.json").json()["paths"]
    (feed,) = [each for each in paths["/feeds/{feed}/history"]["get"]["parameters"] if each["name"] == "feed"]
    assert feed["schema"]["enum"] == ["north"]
