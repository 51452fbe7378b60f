"""The page of `benchmarks.serve`."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.harness import origin, table

__all__ = ["report"]

LEAST_WITHIN, MOST_GROWTH, MOST_PAGE_MS, LEAST_SHARE, LEAST_REQUESTS = 0.99, 1.05, 1000.0, 0.9, 10_000


def report(results: list[dict[str, Any]]) -> str:
    """The newest result of each trial as a page."""
    newest = {result["kind"]: result for result in results}
    parts, verdicts = ["# A served farm", origin("serve", list(newest.values()))], []
    trials = {
        "load": _load,
        "memory": _memory,
        "throughput": _throughput,
        "kills": _kills,
        "database": _database,
        "schema": _schema,
    }
    for kind, lines in trials.items():
        if kind in newest:
            said, found = lines(newest[kind])
            parts += said
            verdicts += found
    if "demo" in newest:
        parts.append(
            f"## The demo\n\n`momostream demo` prints the address of its page after "
            f"{newest['demo']['seconds_to_address']:.1f} s, and the page answers after "
            f"{newest['demo']['seconds_to_page']:.1f} s. Kernels were compiled before."
        )
    return "\n\n".join([*parts, "## Targets", "\n".join(verdicts)])


def _verdict(passed: bool, words: str) -> str:
    return f"* {'PASS' if passed else 'MISS'}: {words}"


def _load(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    probes = {feed: found for feed, found in result["probes"].items() if found}
    lines = []
    for feed, found in probes.items():
        shares = [sum(each <= end for each in found) / len(found) for end in (0.25, 0.5, 1.0)]
        quantile = found[min(len(found) - 1, int(0.99 * len(found)))]
        how = "HTTP" if feed == "north" else "MQTT"
        lines.append(
            [how, f"{len(found):,}", f"{statistics.median(found):.3f}", f"{quantile:.3f}", f"{found[-1]:.3f}"]
            + [f"{share:.1%}" for share in shares]
        )
    header = ["rows over", "timed", "median s", "99 % s", "longest s", "within .25 s", "within .5 s", "within 1 s"]
    said = [
        f"## {result['machines']} machines, {result['pages']} open pages",
        f"One row of each machine per ten seconds, for {result['seconds']:.0f} s: {result['rows']:,} rows, "
        f"{100 * result['cpu'] / result['seconds']:.0f} % of a core; pages got {result['event_bytes'] / 1e6:.1f} MB. "
        "Some rows were timed by a client, from sending the row to reading its forecast.",
        table(header, lines),
        f"Of all rows over HTTP, {result['within']['1.0']:.2%} were forecast within 1 s of their acceptance, by the "
        f"server's own count. Before, {result['simulated_rows']:,} rows ({_minutes(result):.0f} min of these machines) "
        f"took {1e3 * result['simulated_cpu'] / result['simulated_rows']:.2f} ms of CPU each.",
    ]
    worst = min(sum(each <= 1.0 for each in found) / len(found) for found in probes.values())
    verdicts = [_verdict(worst >= LEAST_WITHIN, f"rows forecast within 1 s: {worst:.2%} (99 %)")]
    if result["page_ms"]:
        median = statistics.median(result["page_ms"])
        said.append(f"The page shows its first tile after {median:.0f} ms (median of {len(result['page_ms'])}).")
        verdicts.append(_verdict(median < MOST_PAGE_MS, f"page load: {median:.0f} ms (below 1,000)"))
    return said, verdicts


def _memory(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    said, verdicts = ["## Memory"], []
    for trial in filter(None, (result, result.get("window"))):
        kept = "all rows" if trial.get("rows_kept") is None else f"`window = {trial['rows_kept']}`"
        lines = [[f"{total:,.0f}", f"{models:,.0f}", f"{total - models:,.0f}"] for total, models in trial["mb"]]
        said += [
            f"{trial['machines']} machines whose models keep {kept}, {trial['rows']:,} rows of each, as fast as they "
            f"are learnt ({1e3 * trial['cpu'] / trial['rows'] / trial['machines']:.2f} ms of CPU each). In MB, at "
            "equal distances:",
            table(["resident", "of models", "others"], lines),
            f"From the third to the last quarter, models grew {trial['model_growth']:.3f} times, all else "
            f"{trial['other_growth']:.3f} times.",
        ]
        words = f"memory of the last quarter over that of the third, {kept}: {trial['growth']:.3f} (at most 1.05)"
        verdicts.append(_verdict(trial["growth"] <= MOST_GROWTH, words))
    said.append("Models grow with the rows that they keep, up to the `memory` of a feed; a `window` bounds them.")
    return said, verdicts


def _minutes(result: dict[str, Any]) -> float:
    return result["simulated_rows"] / result["machines"] / 6.0


def _throughput(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    lines = [
        [name, f"{result[key]:,.0f}", f"{result[f'{key}_wall']:,.0f}"]
        for name, key in ((f"`POST` of {result['batch']:,} rows", "serve"), ("`momostream run` over a file", "run"))
    ]
    said = ["## Throughput", table(["", "rows per second of CPU", "rows per second"], lines)]
    said.append(
        "Both write forecasts and alarms to a store. The CPU time of the server includes its interface and its page."
    )
    words = f"rows per CPU second of pushes over those of a file: {result['share']:.2f} (at least .90)"
    return said, [_verdict(result["share"] >= LEAST_SHARE, words)]


def _kills(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    said = [
        "## Kills",
        f"{result['kills']} times SIGKILL while a client pushed {result['rows']:,} rows and sent again what was not "
        f"accepted, beside an undisturbed run with {result['forecasts']:,} forecasts and {result['alarms']} alarms.",
    ]
    words = f"{result['kills']} kills: each row once, forecasts and alarms as in the undisturbed run"
    return said, [_verdict(result["same"] and result["each_row_once"], words)]


def _database(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    said = [
        "## Kills with PostgreSQL",
        f"Forecasts and alarms went to PostgreSQL, and {result['kills']} times the server, the database or both got a "
        f"SIGKILL while a client pushed {result['rows']:,} rows, beside an undisturbed run with "
        f"{result['forecasts']:,} forecasts and {result['alarms']} alarms in the database.",
    ]
    words = f"{result['kills']} kills with PostgreSQL: each row once, its tables as in the undisturbed run"
    return said, [_verdict(result["same"] and result["each_row_once"], words)]


def _schema(result: dict[str, Any]) -> tuple[list[str], list[str]]:
    said = [
        "## Strange requests",
        f"schemathesis: {result['requests']:,} requests by the OpenAPI document, "
        f"{result['server_errors']} server errors{', all checks passed' if result['passed'] else ''}.",
    ]
    passed = result["requests"] >= LEAST_REQUESTS and not result["server_errors"] and result["is_alive"]
    return said, [_verdict(passed, f"no 5xx in {result['requests']:,} requests (10,000)")]
