"""Reports of many machines, at the end of a run and every morning."""

from __future__ import annotations

from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

from momostream.serve.reports import N_KEPT, MorningReports
from tests.cli.commands import BY_TURBINE, FORECAST, SOFT, call, farm_text

from .farms import push, row, running


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_a_run_over_machines_has_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("farm.csv").write_text(farm_text(60))
    call(
        "run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.csv", "--report", "farm.html", "--alarms", "alarms.jsonl"
    )
    page = Page(Path("farm.html").read_text())
    assert page.tags.count("svg") == 3 and "script" not in page.tags and "img" not in page.tags
    assert {"T01", "T02", "T03", "180", "Newest alarms"} <= set(page.texts)
    assert page.texts.index("T01") < page.texts.index("T03")
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "soft.csv", "--report", "soft.html", "-q")
    assert Page(Path("soft.html").read_text()).tags.count("svg") == 3


def test_hostile_names_are_text(tmp_path):
    name = '<script>alert(1)</script>"\n=cmd' + "x" * 400
    with running(tmp_path) as (client, state):
        push(client, [row(n, name, power=900.0 if n == 45 else None) for n in range(1, 50)], state)
        (path,) = MorningReports([state], tmp_path / "reports", "00:00").write_if_due()
    page = Page(path.read_text())
    assert "script" not in page.tags and any("<script>alert(1)</script>" in text for text in page.texts)
    assert max(len(text) for text in page.texts if "xxx" in text) <= 200


def test_one_report_every_morning(tmp_path):
    with running(tmp_path) as (client, state):
        push(client, [row(n) for n in range(1, 40)], state)
        reports = MorningReports([state], tmp_path / "reports", "06:00")
        day = datetime(2026, 11, 18)
        assert not reports.write_if_due(day.replace(hour=5, minute=59))
        (path,) = reports.write_if_due(day.replace(hour=6))
        assert path.name == "north-2026-11-18.html"
        assert not reports.write_if_due(day.replace(hour=7))
        # Another process of the same day does not write it again.
        assert not MorningReports([state], tmp_path / "reports", "06:00").write_if_due(day.replace(hour=8))
        for n in range(1, N_KEPT + 3):
            assert len(reports.write_if_due(day.replace(hour=9) + timedelta(days=n))) == 1
        assert len(list((tmp_path / "reports").iterdir())) == N_KEPT
        (tmp_path / "file").write_text("")
        blocked = MorningReports([state], tmp_path / "file", "06:00")
        assert not blocked.write_if_due(day.replace(hour=9))
