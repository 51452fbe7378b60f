"""Hostile trials: random calls, changed files, kills, strange feeds, long runs and threads, all of which must hold.

    python -m benchmarks.gauntlet [histories | files | kills | feeds | leaks | threads ...] [--quick]
    python -m benchmarks.gauntlet histories --kind regressor --seed 14    # repeats one

`histories` makes random calls with hostile values on every estimator, with copies by file, pickle, compressed and in
blocks at random moments that must stay the same to the bit; `lives` does so with thousands of calls on one. `files`
reads model files that were changed and given a valid checksum, in processes of their own; `stores` does the same with
stores, and lets runs resume from them. `bytes` changes what readers of feeds, messages, requests and files are given.
`kills` ends keyed runs by SIGKILL, with and without models that rest in the store, and twice in a row, and compares
what they leave with an undisturbed run. `feeds` runs over files with bombs, endless lines and strange values. `leaks`
learns 100,000 rows with a window, `threads` predicts while one thread learns. Each trial is drawn from a seed. Goes to
``results/gauntlet.md``, which adds up all trials that were kept; of a batch of seeds, the newest. A full run takes an
hour.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import RESULTS, about, keep_result, kept_results, origin, table, write_results
from benchmarks.tools import gauntlet_bytes, gauntlet_stores
from benchmarks.tools.gauntlet_feeds import FEEDS, leak, read_feed, threads
from benchmarks.tools.gauntlet_files import KINDS, read_files
from benchmarks.tools.gauntlet_histories import CALLS, ESTIMATORS, LIFE, LONG_CALLS, history, life
from benchmarks.tools.gauntlet_kills import Trial

PARTS = ("kills", "files", "stores", "bytes", "histories", "lives", "feeds", "leaks", "threads")
# Of each estimator; a history has 60 calls, every tenth 400.
HISTORIES = {"regressor": 250, "forecaster": 250, "monitor": 1000, "table": 250}
QUICK_HISTORIES = {"regressor": 60, "forecaster": 20, "monitor": 60, "table": 10}
# Of each estimator, and calls of one; with the histories, a million.
LIVES = {"regressor": (10, LIFE), "forecaster": (10, LIFE), "monitor": (32, LIFE), "table": (7, 2000)}
QUICK_LIVES = {"regressor": (2, 1000), "forecaster": (2, 1000), "monitor": (2, 2000), "table": (2, 200)}
FILES, QUICK_FILES = 5000, 100
STORES, QUICK_STORES = 100, 15
BYTES, QUICK_BYTES = 10_000, 300
# Kinds of kills: number of runs, whether memory is short, whether kills come in pairs; kills of one run.
KILLS = {"memory": (40, False, False), "no memory": (5, True, False), "no memory, double": (5, True, True)}
KILLS_OF_RUN, QUICK_KILLS_OF_RUN = 20, 3
LEAK_ROWS, QUICK_LEAK_ROWS = 100_000, 1000
THREAD_ROWS, QUICK_THREAD_ROWS = 5000, 100
# A model with a window may grow by this: allocators keep what they have had.
MOST_GROWTH = 16 << 20
# Feeds that take long because they are large.
LARGE_FEEDS = {"a bomb", "an endless line", "an endless CSV line"}
BATCH = 250
# What the long form has to reach: how often what was counted, in which kinds of which part.
TARGETS = {
    "random calls": (1_000_000, ("histories", "lives"), "calls", tuple(HISTORIES)),
    "kills": (1000, ("kills",), "kills", tuple(KILLS)),
    "kills with memory pressure": (200, ("kills",), "kills", ("no memory", "no memory, double")),
    "kills in pairs": (100, ("kills",), "kills", ("no memory, double",)),
    "changed files": (20_000, ("files",), "files", KINDS),
}

Result = dict[str, Any]


def histories(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Random histories; one result for each batch of seeds."""
    for kind in kinds or list(ESTIMATORS):
        every = seeds or range((QUICK_HISTORIES if quick else HISTORIES)[kind])
        for start in range(every.start, every.stop, BATCH):
            batch = range(start, min(start + BATCH, every.stop))
            n_calls, wrong = 0, {}
            for seed in batch:
                try:
                    n_calls += history(kind, seed, CALLS if seed % 10 else LONG_CALLS)
                except Exception as error:
                    wrong[seed] = str(error)
            yield _result(kind, batch, {"calls": n_calls}, wrong)


def lives(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Long histories; one result for each."""
    for kind in kinds or list(LIVES):
        n_lives, n_calls = (QUICK_LIVES if quick else LIVES)[kind]
        for seed in seeds or range(n_lives):
            done, wrong = 0, {}
            try:
                done = life(kind, seed, n_calls)
            except Exception as error:
                wrong[seed] = str(error)
            yield _result(kind, range(seed, seed + 1), {"lives": 1, "calls": done}, wrong)


def files(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Changed files; one result for each batch of seeds."""
    for kind in kinds or KINDS:
        every = seeds or range(QUICK_FILES if quick else FILES)
        for start in range(every.start, every.stop, BATCH):
            batch = range(start, min(start + BATCH, every.stop))
            counts, wrong = read_files(kind, batch)
            yield _result(kind, batch, {"files": len(batch), **counts}, wrong)


def stores(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Changed stores; one result for each batch of seeds."""
    for kind in kinds or gauntlet_stores.KINDS:
        every = seeds or range(QUICK_STORES if quick else STORES)
        for start in range(every.start, every.stop, BATCH):
            batch = range(start, min(start + BATCH, every.stop))
            counts, wrong = gauntlet_stores.read_stores(kind, batch)
            yield _result(kind, batch, {"stores": len(batch), **counts}, wrong)


def bytes_(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Changed bytes for readers; one result for each reader."""
    for kind in kinds or gauntlet_bytes.READERS:
        every, wrong = seeds or range(QUICK_BYTES if quick else BYTES), {}
        for seed in every:
            try:
                gauntlet_bytes.read(kind, seed)
            except Exception as error:
                wrong[seed] = repr(error)
        yield _result(kind, every, {"inputs": len(every)}, wrong)


def kills(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Runs that are killed; one result for each run."""
    for kind in kinds or KILLS:
        n_runs, pressure, double = KILLS[kind]
        for seed in seeds or range(1 if quick else n_runs):
            wrong = {}
            trial = Trial(seed, QUICK_KILLS_OF_RUN if quick else KILLS_OF_RUN, pressure, double)
            found: Result = {"kills": 0}
            try:
                found = trial.run()
                if found["different"]:
                    wrong[seed] = f"different: {', '.join(found['different'])}; {' '.join(trial.options)}"
            except Exception as error:
                wrong[seed] = f"{error}; {' '.join(trial.options)}"
            yield _result(kind, range(seed, seed + 1), {"runs": 1, "kills": found["kills"]}, wrong)


def feeds(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Hostile feeds; one result for each."""
    for name in kinds or [name for name in FEEDS if not (quick and name in LARGE_FEEDS)]:
        wrong = read_feed(name)
        yield _result(name, range(1), {"feeds": 1}, {0: wrong} if wrong else {})


def leaks(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Long runs with a window."""
    for kind in kinds or ["regressor", "forecaster"]:
        found = leak(kind, QUICK_LEAK_ROWS if quick else LEAK_ROWS)
        grown = found["bytes"] > MOST_GROWTH or found["descriptors"] > 0 or found["threads"] > 0
        counts = {"rows": found["rows"], "bytes grown": found["bytes"]}
        yield _result(kind, range(1), counts, {0: f"grew: {found}"} if grown else {})


def readers(kinds: list[str], seeds: range | None, quick: bool) -> Iterator[Result]:
    """Threads that predict while one learns."""
    found = threads(QUICK_THREAD_ROWS if quick else THREAD_ROWS)
    counts = {"rows": found["rows"], "predictions": found["predictions"]}
    yield _result("regressor", range(1), counts, {0: "; ".join(found["errors"])} if found["errors"] else {})


TRIALS = {
    "kills": kills, "files": files, "stores": stores, "bytes": bytes_, "histories": histories, "lives": lives,
    "feeds": feeds,
    "leaks": leaks, "threads": readers,
}  # fmt: skip


def _result(kind: str, seeds: range, counts: dict[str, int], wrong: dict[int, str]) -> Result:
    return {"kind": kind, "seeds": [seeds.start, seeds.stop - 1], "counts": counts, "wrong": wrong}


def report(results: list[Result]) -> str:
    """Counts by part and kind, and all that went wrong with its seed."""
    # A batch that was repeated, after something was mended, counts once.
    results = list({(each["part"], each["kind"], *each["seeds"]): each for each in results}.values())
    rows = []
    for part, kind in dict.fromkeys((result["part"], result["kind"]) for result in results):
        mine = [result for result in results if (result["part"], result["kind"]) == (part, kind)]
        counts: Counter[str] = Counter()
        for result in mine:
            counts.update(result["counts"])
        seeds = f"{min(r['seeds'][0] for r in mine)} to {max(r['seeds'][1] for r in mine)}"
        n_wrong = sum(len(result["wrong"]) for result in mine)
        seconds = [f"{sum(result[name] for result in mine):,.0f}" for name in ("seconds", "cpu")]
        what = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        rows.append([part, kind, what, seeds, f"{n_wrong}", *seconds])
    wrong = [
        f"* `{result['part']} --kind {result['kind']!r} --seed {seed}`: {' '.join(str(text).split())[:300]}"
        for result in results
        for seed, text in result["wrong"].items()
    ]
    return "\n\n".join(
        [
            "# Gauntlet: hostile trials",
            # Pieces of the long form were asked for one by one; their commands say nothing that the table does not.
            origin("gauntlet", [{key: each[key] for key in each if key != "options"} for each in results]),
            "Random calls, changed files with valid checksums, kills, strange feeds, long runs and threads. A trial\n"
            "that fails is repeated by `python -m benchmarks.gauntlet` with the part, kind and seed of its line.",
            table(["part", "kind", "trials", "seeds", "failures", "wall time (s)", "CPU (s)"], rows),
            "\n".join(_verdicts(results)),
            "\n".join(["Failures:", "", *wrong]) if wrong else "No failures.",
        ]
    )


def _verdicts(results: list[Result]) -> list[str]:
    """What has to be reached, and what was; the time of all of it."""

    def line(words: str, passed: bool) -> str:
        return f"* {words}: {'PASS' if passed else 'MISS'}"

    lines = []
    for words, (least, parts, name, kinds) in TARGETS.items():
        mine = [each for each in results if each["part"] in parts and each["kind"] in kinds]
        n = sum(each["counts"].get(name, 0) for each in mine)
        lines.append(line(f"{n:,} {words}, at least {least:,}", n >= least))
    n_wrong = sum(len(each["wrong"]) for each in results)
    hours = [sum(each[name] for each in results) / 3600.0 for name in ("seconds", "cpu")]
    return [
        *lines,
        line(f"{n_wrong} failures in all parts, none allowed", not n_wrong),
        f"* time of all trials above: {hours[0]:.2f} hours, {hours[1]:.2f} of CPU",
    ]


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Run the trials that are asked for, keep and report them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts, all by default")
    parser.add_argument("--kind", action="append", default=[], help="kinds of a part, all by default")
    parser.add_argument("--seed", type=int, help="this seed only; nothing is kept")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "STOP"), help="these seeds only")
    parser.add_argument("--quick", action="store_true", help="two minutes; nothing is kept")
    options = parser.parse_args()
    # Leaves that start over say so, which hostile values make them do all the time.
    logging.getLogger("momostream").setLevel(logging.ERROR)
    seeds = range(options.seed, options.seed + 1) if options.seed is not None else None
    seeds = range(*options.seeds) if options.seeds else seeds
    keep, path, where = not options.quick and options.seed is None, RESULTS / "gauntlet.jsonl", about()
    results = []
    for part in options.parts or PARTS:
        began, cpu = time.monotonic(), _cpu_seconds()
        for found in TRIALS[part](options.kind, seeds, options.quick):
            took = {"seconds": round(time.monotonic() - began, 1), "cpu": round(_cpu_seconds() - cpu, 1)}
            result = {"part": part, **found, **took, **where}
            began, cpu = time.monotonic(), _cpu_seconds()
            results.append(result)
            said = f"{part} {result['kind']} {result['seeds']}: {result['counts']}, {len(result['wrong'])} failures"
            print(said, file=sys.stderr, flush=True)
            if keep:
                keep_result(path, result)
    print(report(results))
    if keep:
        write_results("gauntlet", report(kept_results(path)))
    n_wrong = sum(len(result["wrong"]) for result in results)
    if n_wrong:
        raise SystemExit(f"{n_wrong} trials failed")


if __name__ == "__main__":
    main()
