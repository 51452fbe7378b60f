from __future__ import annotations

import hashlib
import json
import re
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as main
from benchmarks import data, harness
from benchmarks.tools import readme

ROOT = data.ROOT

# ---------------------------------------------------------------------- the list


def test_every_file_with_a_short_form_is_a_question():
    files = (ROOT / "benchmarks").glob("[!_]*.py")
    assert {path.stem for path in files if "--quick" in path.read_text(encoding="utf-8")} == set(main.QUESTIONS)


@pytest.mark.parametrize("name", main.QUESTIONS)
def test_questions_say_what_they_ask_and_how_long_it_takes(name):
    first, second, *_ = main.docstring(name).splitlines()
    assert first.endswith(".") and not second
    assert re.search("minute|hour", main.duration(name))


def test_the_list_has_two_lines_for_each_question():
    lines = main.listing().splitlines()
    assert [line.split()[0] for line in lines[::2]] == list(main.QUESTIONS)
    assert all("full run" in line for line in lines[1::2])


def test_last_run_is_the_last_day_of_the_results(tmp_path):
    assert main.last_run("stream", tmp_path) == "not run yet"
    about = [{"date": f"2024-03-0{day}T12:00:00"} for day in (2, 5, 3)]
    path = tmp_path / "stream.md"
    path.write_text(f"# Streams\n\n{harness.origin('stream', about)}\n\nSince 2031-01-01 by all.\n")
    assert main.last_run("stream", tmp_path) == "results/stream.md, 2024-03-05"
    path.write_text(f"# Streams\n\n{harness.origin('stream', [])}\n")
    assert main.last_run("stream", tmp_path) == "results/stream.md, day not recorded"


def test_quick_runs_all_and_tells_what_failed(monkeypatch, capsys):
    ran = []

    def run(command, **_):
        ran.append(command[2:])
        return SimpleNamespace(returncode=int("benchmarks.speed" in command), stderr="it broke")

    monkeypatch.setattr(main.subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--quick"])
    with pytest.raises(SystemExit, match="^failed: speed$"):
        main.main()
    assert ran == [[f"benchmarks.{name}", "--quick"] for name in main.QUESTIONS]
    assert "it broke" in capsys.readouterr().err


# ---------------------------------------------------------------------- where results come from


def test_origin_names_all_values_once():
    run = {**harness.about(), "options": ["etth1", "--quick"], "revision": "abc", "machine": "a machine"}
    line = harness.origin("peers", [run, run, {**run, "revision": "def", "versions": {"numpy": "1.0"}}])
    assert line.startswith(
        f"Measured {run['date'][:10]} by `python -m benchmarks.peers etth1 --quick`, revision abc, def;"
    )
    assert f"numpy {run['versions']['numpy']} and 1.0, " in line and line.endswith("; a machine, one BLAS thread.")


def test_origin_says_what_is_not_known():
    line = harness.origin("peers", [])
    assert line.count("not recorded") == 4 and "`python -m benchmarks.peers`" in line


@pytest.mark.parametrize("path", sorted(harness.RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_results_say_where_they_come_from(path):
    title, _, line, *_ = path.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    for part in (f"`python -m benchmarks.{path.stem}", "Measured ", "revision ", "Python ", "numpy ", "cores"):
        assert part in line


# ---------------------------------------------------------------------- tables in README


@pytest.fixture
def results(tmp_path):
    (tmp_path / "peers.md").write_text(f"# Peers\n\n{readme.marked('| a |')}\n\nmore\n")
    (tmp_path / "none.md").write_text("# None\n")
    (tmp_path / "two.md").write_text(f"{readme.marked('| a |')}\n{readme.marked('| b |')}\n")
    return tmp_path


def test_tables_are_put_between_their_comments(results):
    text = "one\n<!-- table: peers -->\nold\n<!-- /table -->\ntwo\n<!-- table: peers -->\n<!-- /table -->\n"
    once = readme.filled(text, results)
    block = "<!-- table: peers -->\n\n| a |\n\n<!-- /table -->\n"
    assert once == f"one\n{block}two\n{block}"
    assert readme.filled(once, results) == once
    assert readme.filled("nothing\n", results) == "nothing\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!-- table: peers -->\n", "start or an end only"),
        ("<!-- /table -->\n", "start or an end only"),
        ("<!-- table: peers -->\n<!-- table: peers -->\n<!-- /table -->\n", "start or an end only"),
        ("<!-- table: missing -->\n<!-- /table -->\n", "missing.md has 0 tables"),
        ("<!-- table: none -->\n<!-- /table -->\n", "none.md has 0 tables"),
        ("<!-- table: two -->\n<!-- /table -->\n", "two.md has 2 tables"),
    ],
)
def test_tables_that_cannot_be_put_are_an_error(results, text, words):
    with pytest.raises(ValueError, match=words):
        readme.filled(text, results)


def test_the_table_for_readme_has_six_lines():
    _, _, *lines = readme.table_of("peers").splitlines()
    assert len(lines) == 6
    assert sum("**momostream**" in line for line in lines) == 2


def test_tables_of_readme_are_those_of_the_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.filled(text) == text, "run python -m benchmarks --readme"


def test_readme_is_written(tmp_path, monkeypatch, results):
    monkeypatch.setattr(main, "ROOT", tmp_path)
    monkeypatch.setattr(main, "filled", lambda text: readme.filled(text, results))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--readme"])
    (tmp_path / "README.md").write_text("<!-- table: peers -->\n<!-- /table -->\n")
    main.main()
    assert (tmp_path / "README.md").read_text() == "<!-- table: peers -->\n\n| a |\n\n<!-- /table -->\n"


# ---------------------------------------------------------------------- files of the data


def test_files_are_told_apart_by_their_checksums(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"a")
    (tmp_path / "b.gz").write_bytes(b"b")
    sum_of_a = hashlib.sha256(b"a").hexdigest()
    sets = {name: {"file": f"{name}.gz", "sha256": sum_of_a} for name in "abc"}
    assert data.checked(tmp_path, sets) == {"a": "ok", "b": "another file", "c": "missing"}


@pytest.mark.parametrize(("content", "code"), [(b"a", None), (b"b", 1)])
def test_the_check_fails_where_a_file_is_another(tmp_path, monkeypatch, capsys, content, code):
    (tmp_path / "columns.json").write_text("{}")
    (tmp_path / "a.gz").write_bytes(content)
    sets = {"a": {"file": "a.gz", "sha256": hashlib.sha256(b"a").hexdigest()}}
    monkeypatch.setattr(data, "known", lambda: sets)
    monkeypatch.setenv("MOMOSTREAM_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["data"])
    if code is None:
        data.main()
    else:
        with pytest.raises(SystemExit) as stopped:
            data.main()
        assert stopped.value.code == code
    assert capsys.readouterr().out.split() == (["a", "ok"] if code is None else ["a", "another", "file"])


def test_the_page_is_that_of_what_is_known():
    assert data.PAGE.read_text(encoding="utf-8") == data.page(data.known()), "run python -m benchmarks.data --page"


def test_what_is_known_agrees_with_the_folder(data_dir):
    columns, known = json.loads((data_dir / "columns.json").read_text()), data.known()
    assert set(known) == set(columns)
    for name, described in known.items():
        for fact in ("file", "rows", "source", "licence"):
            assert described[fact] == columns[name][fact]
        assert (described["inputs"], described["targets"]) == tuple(
            len(columns[name][kind]) for kind in ("inputs", "targets")
        )
        path = data_dir / described["file"]
        assert path.stat().st_size == described["bytes"]
    assert set(data.checked(data_dir, known).values()) == {"ok"}
