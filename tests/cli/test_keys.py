"""Runs over many machines: a model for each, dead letters, alarms, parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from momostream.storage.store import Store
from tests.cli.commands import (
    BY_TURBINE,
    FORECAST,
    MACHINES,
    SOFT,
    as_json_lines,
    call,
    farm_text,
    feed_text,
    lines_of,
    models_in,
    read,
    rows_of,
)


def alone(machine, *options):
    """What a run says about one machine, on a feed of its rows alone, line by line without the number of the row."""
    header, *lines = lines_of("farm.csv")
    Path("alone.csv").write_text("\n".join([header, *(line for line in lines if line.startswith(machine))]) + "\n")
    call("run", "alone.csv", *options, "-o", "alone.out.csv", "-q", "--overwrite")
    return [{**row, "row": None} for row in rows_of(Path("alone.out.csv").read_text())]


@pytest.mark.parametrize("plan", [SOFT, FORECAST], ids=["soft", "forecast"])
@pytest.mark.parametrize("feed", ["farm.csv", "farm.jsonl"])
def test_each_machine_has_a_model_of_its_own(farm, feed, plan):
    """It sees the rows of its machine and no others."""
    Path("farm.jsonl").write_text(as_json_lines(farm_text(20)))
    _, told = call("run", feed, *BY_TURBINE, *plan, "-o", "out.csv", "--store", "run.db")
    assert told == "momostream: 60 rows of 3 keys learnt\n"
    rows = rows_of(Path("out.csv").read_text())
    assert list(rows[0])[:2] == ["turbine", "row"] and [int(row["row"]) for row in rows] == sorted(
        int(row["row"]) for row in rows
    )
    for machine in MACHINES:
        ours = [{**row, "row": None} for row in rows if row["turbine"] == machine]
        assert [{k: v for k, v in row.items() if k != "turbine"} for row in ours] == alone(machine, *plan)
    assert list(models_in("run.db")) == list(MACHINES)


def test_json_lines_name_the_machine(farm):
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.jsonl", "-q")
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.csv", "-q")
    records = [json.loads(line) for line in lines_of("out.jsonl")]
    assert [(record["turbine"], record["row"]) for record in records[-3:]] == [("T01", 58), ("T02", 59), ("T03", 60)]
    steps = [(r["turbine"], r["row"], step["time"], step["power"]["mean"]) for r in records for step in r["steps"]]
    rows = rows_of(Path("out.csv").read_text())
    # The step from one row to the next is not known after the first row.
    assert steps == [(row["turbine"], int(row["row"]), row["time"] or None, float(row["power"])) for row in rows]


def test_keys_may_be_whole_numbers(farm):
    rows = [{"time": 60 * t, "unit": unit, "wind": 8 + t % 5, "power": unit * t} for t in range(12) for unit in (0, 7)]
    Path("units.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    call("run", "units.jsonl", "--key", "unit", *SOFT, "--store", "run.db", "-q")
    assert list(models_in("run.db")) == [0, 7] and {record["unit"] for record in read("run.db")} == {0, 7}
    with Store("run.db", read_only=True) as store:
        assert {output.key for _, output in store.outputs()} == {0, 7}
    assert "MOMoGPRegressor: 12 rows" in call("inspect", "run.db", "--key", "7")[0]


@pytest.mark.parametrize("memory", ["1024", "0"])
def test_a_run_over_many_machines_resumes_exactly(farm, memory):
    """Whether models stay in memory or rest in the store."""
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "--memory", memory, "--commit-every", "7", "-q"]
    for limit in (["--limit", "25"], ["--limit", "1"], []):
        call(*command, "-o", "out.csv", "--store", "run.db", *limit)
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "-q", "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")


def spoil(text):
    """Four rows that cannot be used: without a key, with a cell too many, with a bad number, with a time of before."""
    lines = text.splitlines()
    lines[10] = lines[10].removeprefix("T01")
    lines[20] += ",off"
    lines[30] = "T03,2024-03-01 01:30,fast,0.4,272,on"
    lines[40] = lines[37]
    return "\n".join(lines) + "\n"


DEAD = [
    (None, "column 'turbine': the key is missing"),
    (None, "7 cells instead of 6"),
    ("T03", "column 'wind': 'fast' is not a number"),
    ("T01", "time must increase"),
]


def test_rows_that_cannot_be_used_become_dead_letters(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.csv", "--store", "run.db"]
    _, told = call(*command, "--dead-letters", "dead.jsonl")
    assert "momostream: farm.csv: row 10, column 'turbine': the key is missing\n" in told
    assert "momostream: 56 rows of 3 keys learnt, 4 bad rows skipped\n" in told
    letters = read("run.db", "dead")
    assert [(letter["key"], letter["reason"].split(": 2024")[0]) for letter in letters] == DEAD
    assert list(letters[0]) == ["source", "offset", "key", "reason", "row"] and letters[0]["source"] == "farm.csv"
    text = Path("farm.csv").read_text()
    for letter in letters[:3]:
        # The bytes of the row, which ends at its offset.
        assert text[: letter["offset"]].endswith("\n" + letter["row"] + "\n")
    assert lines_of("dead.jsonl") == call("read", "run.db", "dead")[0].splitlines()
    assert {row["row"] for row in rows_of(Path("out.csv").read_text())} == {
        str(n) for n in range(1, 61) if n not in (10, 20, 30, 40)
    }
    assert "56 rows learnt, 4 bad" in call("inspect", "run.db")[0]


def test_dead_letters_without_a_store_and_stopped(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv", "--overwrite"]
    call(*command, "--dead-letters", "dead.jsonl", "-q")
    assert [json.loads(line)["key"] for line in lines_of("dead.jsonl")] == [key for key, _ in DEAD]
    stop = [*command, "--bad-rows", "stop"]
    assert call(*stop, code=1)[1] == "momostream: farm.csv: row 10, column 'turbine': the key is missing\n"


def test_dead_letters_resume_exactly(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv", "-q", "--commit-every", "7"]
    call(*command, "--store", "whole.db", "--dead-letters", "whole.jsonl")
    Path("out.csv").unlink()
    for limit in (["--limit", "24"], []):
        call(*command, "--store", "run.db", "--dead-letters", "dead.jsonl", *limit)
    assert Path("dead.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert read("run.db", "dead") == read("whole.db", "dead")


def test_many_bad_rows_are_reported_sparingly(turbine):
    lines = [line.replace(",on", ",on,off") for line in feed_text(130).splitlines()]
    Path("turbine.csv").write_text("\n".join([feed_text(1).strip(), *lines[2:]]) + "\n")
    _, told = call("run", "turbine.csv", *SOFT, "-o", "out.csv", "--store", "run.db")
    assert told.count("6 cells instead of 5") == 11 and "6 cells instead of 5 (100 so far)" in told
    assert "1 row learnt" in told and "129 bad rows skipped" in told


def test_a_value_out_of_the_ordinary_is_an_alarm(farm):
    lines = farm_text(40).splitlines()
    strange = lines[110].split(",")
    strange[4] = "99999"
    lines[110] = ",".join(strange)
    Path("farm.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv", "--overwrite", "-q", "--alarm-level", "0.9999"]
    call(*command, "--store", "run.db", "--alarms", "store")
    alarms = read("run.db", "alarms")
    (found,) = [alarm for alarm in alarms if alarm["row"] == 110]
    assert found["key"] == strange[0] and found["target"] == "power" and found["value"] == 99999.0
    assert found["lower"] < found["upper"] < 99999.0 and found["level"] == 0.9999
    assert found["time"] == strange[1].replace(" ", "T") + ":00"
    call(*command, "--alarms", "alarms.jsonl")
    assert [json.loads(line) for line in lines_of("alarms.jsonl")] == alarms
    # Alarms do not change predictions.
    before = Path("out.csv").read_bytes()
    call(*command)
    assert Path("out.csv").read_bytes() == before


def test_alarms_of_forecasts_resume_exactly(turbine):
    lines = feed_text(60).splitlines()
    lines[50] = "2024-03-01 08:10,8.0,1.0,99999,on"
    Path("turbine.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "turbine.csv", *FORECAST, "-q", "-o", "out.csv"]
    call(*command, "--alarms", "whole.jsonl")
    assert (50, "power") in [(alarm["row"], alarm["target"]) for alarm in map(json.loads, lines_of("whole.jsonl"))]
    Path("out.csv").unlink()
    for limit in (["--limit", "49"], []):
        call(*command, "--alarms", "alarms.jsonl", "--store", "run.db", *limit)
    assert Path("alarms.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_parts_are_together_the_whole(farm):
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT]
    for part in "12":
        call(*command, "--share", f"{part}/2", "-o", f"part{part}.csv", "--store", f"part{part}.db", "--limit", "7")
        call(*command, "--share", f"{part}/2", "-o", f"part{part}.csv", "--store", f"part{part}.db")
    call(*command, "-o", "whole.csv", "--store", "whole.db")
    first, second = models_in("part1.db"), models_in("part2.db")
    assert first and second and not first.keys() & second.keys() and first | second == models_in("whole.db")
    parts = [row for part in "12" for row in rows_of(Path(f"part{part}.csv").read_text())]
    assert sorted(parts, key=lambda row: int(row["row"])) == rows_of(Path("whole.csv").read_text())


def test_workers_write_the_same_files(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT]
    for name, workers in (("one", []), ("two", ["--workers", "2"])):
        outputs = ["-o", f"{name}.csv", "--alarms", f"{name}.alarms", "--dead-letters", f"{name}.dead"]
        call(*command, *outputs, "--store", f"{name}.db", "--limit", "15", *workers)
        assert "of 3 keys learnt" in call(*command, *outputs, "--store", f"{name}.db", *workers)[1]
    for kind in ("csv", "alarms", "dead"):
        assert Path(f"two.{kind}").read_bytes() == Path(f"one.{kind}").read_bytes()
    assert models_in("two.db") == models_in("one.db")
    call(*command, "-o", "free.csv", "--workers", "2", "-q")
    assert Path("free.csv").read_bytes() == Path("one.csv").read_bytes()


def test_each_bad_row_falls_to_one_part(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-q"]
    call(*command, "--store", "whole.db")
    for part in "12":
        call(*command, "--share", f"{part}/2", "--store", f"part{part}.db")
    dead = read("part1.db", "dead") + read("part2.db", "dead")
    assert sorted(dead, key=lambda letter: letter["offset"]) == read("whole.db", "dead")


def test_the_earlier_name_of_warm_start(farm):
    """`--kin` is not in the help; it gives the same models, and a note."""
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT]
    assert "--warm-start; the old name still works" in call(*command, "--kin", "--store", "kin.db")[1]
    assert "--kin" not in call(*command, "--warm-start", "--store", "warm.db")[1]
    assert models_in("kin.db") == models_in("warm.db") and "--kin" not in call("run", "--help")[0]
    told = call(*command, "--store", "warm.db", code=1)[1]
    assert "cannot resume: warm-start was True, now it is False" in told


def test_another_part_does_not_resume(farm):
    """Rows of other machines before that position would be lost."""
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db"]
    call(*command, "--share", "1/2", "--limit", "10")
    for share in (["--share", "2/2"], ["--share", "1/3"], []):
        assert "cannot resume: share was" in call(*command, *share, code=1)[1]
