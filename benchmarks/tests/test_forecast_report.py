"""The tables and verdicts of the forecast benchmark."""

from __future__ import annotations

import pytest

from benchmarks.data import FORECASTS, half_of
from benchmarks.tools import forecast_report

CASES = [(feed, horizon, plan.rows) for feed, plan in FORECASTS.items() for horizon in plan.horizons]
WORSE = {"rmse": 0.7, "mae": 0.5, "nlpd": 0.8, "crps": 0.4}


def result(model="momostream", feed="etth1", horizon=6, rows=4000, **scores):
    figures = {"rmse": 0.6, "rmse_pooled": 0.4, "mae": 0.4, "mase": 1.0, "nlpd": 0.7, "crps": 0.3}
    figures |= {"coverage": [0.5, 0.9, 0.99], "by_step": {"rmse": [0.5] * horizon, "mae": [0.3] * horizon}}
    figures |= scores
    found = {"feed": feed, "horizon": horizon, "model": model, "rows": rows, "seed": 0, "date": "today"}
    found |= {"done": rows, "capped": False, "scores": figures, "every_fifth": figures}
    found["us"] = {"median": 1234.0, "p99": 20.0, "p99.9": 30.0, "max": 40.0, "mean": 12.0}
    if model in forecast_report.OURS:
        found["young"] = {"ratios": [1.0, 0.9, 0.8, None], "coverage": [0.5, 0.9, 0.99], "whole": [0.5, 0.9, 0.99]}
        found["slowest"] = [{"ms": 4.0, "row": 1008, "gap": 3}]
    return found


def peer(**scores):
    found = result("auto_arima", **scores)
    del found["scores"]
    return {**found, "us": {"mean": 5e4}, "replaced": 0}


def verdicts(results):
    return forecast_report.verdicts(forecast_report.newest(results), results).splitlines()


def line(results, words):
    (found,) = [line for line in verdicts(results) if words in line]
    return found


def everywhere(model, **scores):
    return [result(model, *case, **scores) for case in CASES]


def test_all_promises_are_kept_by_a_model_that_is_better_everywhere():
    untimed, again = result("momostream_untimed", rmse=0.61), everywhere("momostream")
    runs = [*everywhere("momostream"), *again, *everywhere("momostream_linear", **WORSE), untimed]
    found = verdicts([*runs, *everywhere("var", **WORSE)])
    assert len(found) == 15 and all(line.startswith("- PASS") for line in found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rmse": 0.701}, "RMSE at most 1.00 times"),
        ({"rmse": 0.715}, "RMSE at most 1.02 times the best"),
        ({"crps": 0.381}, "CRPS at most 0.95 times"),
        ({"crps": 0.401}, "CRPS at most 1.00 times"),
        ({"mae": 0.51}, "MAE at most 1.01 times"),
        ({"rmse": 0.687}, "RMSE with Gaussian processes at least 2 %"),
        ({"rmse": 0.704}, "RMSE with Gaussian processes never more"),
        ({"crps": 0.403}, "CRPS with Gaussian processes never more"),
    ],
)
def test_scores_miss(change, words):
    rivals = [result("momostream_linear", **WORSE), result("lightgbm", **WORSE)]
    found = line([result(**change), *rivals], words)
    assert found.startswith("- MISS") and "choosing MISS (0 of 1), reporting not measured" in found
    assert ": etth1 6 " in found
    assert line([result(), *rivals], words).startswith("- PASS")


def changed(name, value):
    run = result()
    run[name] = run[name] | value if isinstance(value, dict) else value
    return run


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (changed("young", {"whole": [0.53, 0.9, 0.99]}), "coverage of 50 / 90 / 99 %"),
        (changed("young", {"whole": [0.5, 0.9, 0.975]}), "coverage of 50 / 90 / 99 %"),
        (changed("young", {"ratios": [1.03, 0.9, 0.8, None]}), "times the last value's"),
        (changed("young", {"coverage": [0.5, 0.86, 0.99]}), "coverage of 90 % within"),
        (changed("slowest", [{"ms": 11.0, "row": 1008, "gap": 0}]), "slowest learn_one"),
    ],
)
def test_own_figures_miss(run, words):
    assert line([run], words).startswith("- MISS")
    assert line([result()], words).startswith("- PASS")


def test_cost_is_compared_with_the_first_run_kept():
    cheap = changed("us", {"mean": 11.0})
    assert line([cheap, result()], "mean CPU").startswith("- MISS") and "1.09x" in line([cheap, result()], "mean CPU")
    assert line([result(), cheap], "mean CPU").startswith("- PASS")
    assert line([result()], "mean CPU").startswith("- not measured")


def test_timestamps_may_be_worth_two_percent():
    for error, word in ((0.611, "PASS"), (0.613, "MISS")):
        assert line([result(), result("momostream_untimed", rmse=error)], "without timestamps").startswith(f"- {word}")


def test_a_promise_for_most_cases_is_judged_by_half():
    rivals, ours = everywhere("var", **WORSE), {case: result("momostream", *case) for case in CASES}
    choosing = [case for case in CASES if half_of(case[0]) == "choosing"]
    for case in choosing[:2]:
        ours[case] = result("momostream", *case, rmse=0.705)
    found = line([*ours.values(), *rivals], "RMSE at most 1.00")
    assert found.startswith("- MISS") and f"choosing MISS ({len(choosing) - 2} of {len(choosing)})" in found
    assert "reporting PASS" in found
    ours[choosing[0]] = result("momostream", *choosing[0])
    assert line([*ours.values(), *rivals], "RMSE at most 1.00").startswith("- PASS")


def test_peers_are_compared_at_their_origins():
    ours = result(mae=0.6)
    ours["every_fifth"] = {**ours["scores"], "mae": 0.4}
    assert line([ours, peer(mae=0.41)], "MAE at most").startswith("- PASS")
    assert line([ours, result("ridge", mae=0.41)], "MAE at most").startswith("- MISS")


def test_our_other_models_are_not_rivals():
    found = forecast_report.ratios({("etth1", 6, 4000): {"momostream": result(), "momostream_linear": result()}}, "mae")
    assert found == {}


def cells(text, title, *words):
    part = text.split(f"### {title}\n")[1].split("\n#")[0]
    (row,) = [row for row in part.splitlines() if row.startswith("|") and all(word in row for word in words)]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_unfinished_runs():
    cut = {**result("snarimax", mae=0.1), "capped": True, "done": 1234}
    broken = {"feed": "etth1", "horizon": 6, "model": "holt_winters", "rows": 4000, "seed": 0, "failed": True}
    results = [result(), cut, broken, result("ridge", **WORSE)]
    assert line(results, "MAE at most").startswith("- PASS")
    found = cells(forecast_report.report(results), "MAE", "etth1")
    assert found == ["choosing", "etth1 6", "**0.4000**", "0.5000", "0.1000 (1,234 rows)", "failed"]
    ours = {key: value for key, value in result().items() if key not in ("scores", "every_fifth", "us")}
    assert line([{**ours, "failed": True}, result("ridge")], "to their ends").startswith("- MISS")


def test_newest_result_counts():
    found = line([result(rmse=0.9), result(rmse=0.6), result("ridge", **WORSE)], "RMSE at most 1.00")
    assert found.startswith("- PASS")


def test_halves_stand_side_by_side():
    other = {"feed": "etth2", "horizon": 24}
    results = [result(), result("var", rmse=0.5, mae=0.5, crps=0.6), result(**other), result("var", **other, **WORSE)]
    results += [result("momostream_linear", rmse=0.66), result("momostream_linear", **other)]
    text = forecast_report.report(results)
    assert cells(text, "RMSE beside the best rival", "etth1 6") == [
        *("etth1 6", "0.6000", "var", "**1.200**"),
        *("etth2 24", "0.6000", "var", "0.857"),
    ]
    part = text.split("## Shares of wins")[1]
    summary = [[cell.strip() for cell in row.strip("|").split("|")] for row in part.splitlines() if "| RMSE |" in row]
    assert summary == [["RMSE", "0 of 1", "1.200", "1 of 1", "0.857", "1 of 2", "1.014"]]
    assert cells(text, "By rival: geometric mean of ratios, share of wins", "var")[1] == "1.200, 0 of 1"
    assert cells(text, "With and without Gaussian processes", "etth1")[3] == "0.909"
    assert cells(text, "Young models", "etth1")[1:6] == ["1.000", "0.900", "0.800", "", "0.500 / 0.900 / 0.990"]
    assert cells(text, "The slowest row", "etth1")[1:5] == ["4.0", "1,008", "3", "12"]


def test_report_has_a_table_for_each_question():
    exploded = {**result("snarimax"), "replaced": 1200}
    text = forecast_report.report([result(), exploded, peer(**WORSE), result(rows=900)])
    for words in ("1,234 / 20 / 12", "50,000", "| etth1 6 | snarimax | 1,200 |", "etth1 6 (900 rows)"):
        assert words in text


def test_nothing_measured_is_not_a_pass():
    for results in ([result("ridge")], [], [result(rows=900)]):
        assert "PASS" not in forecast_report.report(results)
