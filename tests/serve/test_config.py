"""The configuration file: every option has a key, and every mistake is named with its line."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

from momostream.cli.farm_checks import check_models_and_files, errors_with_lines
from momostream.cli.init import farm_text
from momostream.cli.models import parse_settings
from momostream.cli.options import FileFormat
from momostream.cli.run import run
from momostream.cli.serve import request_for
from momostream.serve.config import ConfigError, FeedConfig, line_of, read_config, read_config_text

GOOD = """
[serve]
address = "127.0.0.1:0"
title = "North"

[feeds.north]
key = "turbine"
targets = ["power", "temperature"]
horizon = 12
[feeds.north.units]
power = "kW"

[[webhooks]]
url = "https://example.org/alarms"
"""


def test_reads_all_parts():
    farm = read_config_text(GOOD)
    (feed,), (webhook,) = farm.feeds, farm.webhooks
    assert (feed.name, feed.targets, feed.horizon, feed.is_pushed) == ("north", ("power", "temperature"), 12, True)
    assert (feed.units, farm.serve.host_and_port, webhook.timeout) == ({"power": "kW"}, ("127.0.0.1", 0), 10.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "North"', "title = 5", "farm.toml, line 4: serve.title: expected a text, got 5"),
        ("horizon = 12", "horizont = 12", "line 9: unknown key feeds.north.horizont: did you mean 'horizon'?"),
        ("horizon = 12", "horizon = true", "line 9: feeds.north.horizon: expected a whole number of rows"),
        ("horizon = 12", "horizon =", "line 9: Invalid value"),
        ('key = "turbine"', 'key = "power"', "line 7: feeds.north.key: column 'power' is one of the targets as well"),
        ("feeds.north", 'feeds."no/rth"', "line 6: feeds.no/rth: a name of a feed has letters"),
        ('"127.0.0.1:0"', '"127.0.0.1"', "line 3: serve.address: expected HOST:PORT"),
        ('power = "kW"', "power = 3", "line 10: feeds.north.units: expected a table of texts"),
        ('url = "https://example.org/alarms"', "", "line 13: webhooks: url is missing"),
        ("[serve]", "[server]", "line 2: unknown key server: did you mean 'serve'?"),
        ('targets = ["power", "temperature"]', "", "feeds.north: rows that are pushed have no header"),
        ('"temperature"', '"power"', "line 8: feeds.north.targets: expected a list of different names"),
        (
            "horizon = 12",
            'horizon = 12\nbounds = ["power=9:1"]',
            "line 10: feeds.north.bounds: expected a list of limits",
        ),
        ("horizon = 12", 'horizon = 12\nencoding = "utf-9"', "line 10: feeds.north.encoding: expected an encoding"),
        ("horizon = 12", 'horizon = 12\nshare = "3/2"', "line 10: feeds.north.share: expected a part of the keys"),
        ('key = "turbine"', 'share = "1/2"', "line 7: feeds.north.share: divides the keys"),
    ],
)
def test_a_mistake_is_named_with_its_line(old, new, message):
    with pytest.raises(ConfigError) as caught:
        read_config_text(GOOD.replace(old, new))
    assert message in str(caught.value)


def test_a_file_without_feeds_and_bytes_that_are_not_text(tmp_path):
    with pytest.raises(ConfigError, match="there is no feed"):
        read_config_text("")
    path = tmp_path / "farm.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_config(path)


def test_every_option_of_run_has_a_key():
    # Several values make a list, --set a table; the others say how a terminal looks, or need no page.
    renamed = {"target": "targets", "input": "inputs", "set": "model"}
    of_terminals = {"feed", "report", "live", "serve", "quiet", "kin", "workers"}
    options = {renamed.get(name, name) for name in inspect.signature(run).parameters} - of_terminals
    assert options <= {field for field in FeedConfig.__dataclass_fields__}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "horizon = 12",
            "horizon = 12\nmodel = { max_point = 9 }",
            "line 10: feeds.north.model.max_point: --set max_point",
        ),
        (
            "horizon = 12",
            "horizon = 12\nmodel = { max_points = -5 }",
            "line 10: feeds.north.model.max_points: max_points=-5",
        ),
        (
            "horizon = 12",
            'horizon = 12\nbounds = ["wind=0:20"]',
            "line 10: feeds.north.bounds: bounds are given for 'wind'",
        ),
        ("horizon = 12", 'horizon = 12\nalarm = ["power <"]', "line 10: feeds.north.alarm: 'power <'"),
        ("horizon = 12", "horizon = 12\nwarm_start = true", "line 10: feeds.north.warm_start: --warm-start cannot"),
        ("horizon = 12", 'horizon = 12\nsource = "gone.csv"', "line 10: feeds.north.source: gone.csv does not exist"),
        (
            "horizon = 12",
            'horizon = 12\nsource = "mqtt://ann:pw@broker/rows"',
            "line 10: feeds.north.source: FEED contains",
        ),
        ("horizon = 12", "", "line 6: feeds.north: there is no input to predict the targets from"),
        ('title = "North"', 'write_token_file = "gone"', "line 4: serve.write_token_file: gone does not exist"),
    ],
)
def test_check_finds_what_a_start_would_find_later(old, new, message):
    farm = read_config_text(GOOD.replace(old, new))
    requests = {feed.name: request_for(farm, feed) for feed in farm.feeds}
    with pytest.raises(ConfigError) as caught:
        for name, request in requests.items():
            with errors_with_lines(farm, name):
                request.check()
        check_models_and_files(farm, requests)
    assert message in str(caught.value)


def test_limits_of_targets_reach_the_model():
    farm = read_config_text(GOOD.replace("horizon = 12", 'horizon = 12\nbounds = ["power=0:2050", "temperature=:90"]'))
    found = parse_settings(request_for(farm, farm.feeds[0]).model, 12)
    assert found["bounds"] == {"power": (0.0, 2050.0), "temperature": (None, 90.0)}


def test_line_of_finds_keys_in_all_forms():
    lines = ["a.b = 1", "[t]", '"x y" = 2', "[[w]]", "k = 3", "inline = { z = 1 }"]
    paths = [("a", "b"), ("t", "x y"), ("w", "k"), ("w", "inline", "z"), ("missing",)]
    assert [line_of(lines, path) for path in paths] == [1, 3, 5, 6, None]


def test_init_writes_a_file_that_is_read_again():
    text = farm_text('od"d.csv', ['a"b', "c"], "time", "k", 6, False, FileFormat(), Path())
    farm = read_config_text(text)
    assert farm.feeds[0].targets == ('a"b', "c")
    assert farm.feeds[0].key == "k"
    assert tomllib.loads(text)["feeds"]


def test_alarms_for_mails_and_webhooks_stay_in_the_store():
    text = '[feeds.north]\ntargets = ["power"]\nhorizon = 3\nalarms = "{}"\n[[webhooks]]\nurl = "https://example.org"\n'
    for kept in ("store", "postgresql://momo@db/farm"):
        assert read_config_text(text.format(kept)).feeds[0].alarms == kept
    for elsewhere in ("alarms.jsonl", "mqtt://broker/alarms", "-"):
        with pytest.raises(
            ConfigError, match="line 4: feeds.north.alarms: webhooks and mails take alarms from the store"
        ):
            read_config_text(text.format(elsewhere))
        assert read_config_text(text.format(elsewhere).partition("[[")[0]).feeds[0].alarms == elsewhere


def test_sources_and_outputs_of_the_documentation_are_accepted(tmp_path):
    from momostream.cli.serve import request_for

    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    block = next(block for block in page.split("```toml\n")[1:] if "[feeds.plant]" in block).partition("```")[0]
    farm = read_config_text(block, folder=tmp_path)
    request = request_for(farm, farm.feeds[0])
    request.check()
    assert f"password_file={tmp_path}/mqtt.secret&ca={tmp_path}/plant.pem" in request.feed
    assert f"password_file={tmp_path}/db.secret" in request.output and "{turbine}/sensors/{column}" in request.feed


def test_lists_of_the_model_are_tuples(tmp_path):
    from momostream.cli.models import parse_settings
    from momostream.cli.serve import request_for

    text = '[feeds.a]\ntargets = ["x"]\nhorizon = 2\n[feeds.a.model]\nexperts = ["last value", "own lags"]\n'
    farm = read_config_text(text, folder=tmp_path)
    request = request_for(farm, farm.feeds[0])
    assert parse_settings(request.model, 2)["experts"] == ("last value", "own lags")


def test_a_parquet_file_is_read_to_its_end(tmp_path):
    from momostream.cli.serve import request_for

    farm = read_config_text('[feeds.a]\nsource = "a.parquet"\nhorizon = 2\n[feeds.b]\nsource = "b"\nhorizon = 2\n')
    assert [request_for(farm, feed).reading.follow for feed in farm.feeds] == [False, True]
