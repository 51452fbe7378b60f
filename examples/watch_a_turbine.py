"""Watch a wind turbine for strange rows, and compare the alarms with the faults that it really had.

A simulated turbine reports means over ten seconds. From eight readings that it takes anyway the model predicts the six
bending moments at the roots of its blades, then learns the row. Now and then the pitch of one blade lags for hours, or
a bearing wears. Each row gets a score, and above .99 it is an alarm: one row in a hundred, at most, when all is well.

Do not expect the alarms to last as long as the faults: a model that learns every row learns a lasting fault as well.
What it notices is the change, and not always. To find faults that last, learn rows that are known to be good, then
``freeze`` the model. Run it with ``python examples/watch_a_turbine.py``; figures and an HTML report are saved into the
folder that is named behind it, by default ``momostream-watch_a_turbine`` in the current directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure

from momostream import MOMoGPRegressor
from momostream.datasets import WindTurbine
from momostream.plotting import plot_relevance, plot_scores
from momostream.report import write_report
from momostream.tracking import Outlook, Track

N_ROWS, FIRST_ROWS = 4300, 200
ALARM = 0.99
SOON = pd.Timedelta("10min")
PHASES = ("all is well", "fault just begun", "fault goes on", "fault just over")


def watch(turbine: WindTurbine, model: MOMoGPRegressor, track: Track) -> pd.DataFrame:
    """Score each row, then learn it; scores by time, for alarms with the target that lies farthest out in its law."""
    found = []
    for number, (x, y) in enumerate(turbine.take(N_ROWS), start=1):
        score, farthest = model.score_one(x, y), ""
        if law := model.predict_one(x, with_dist=True):
            track.expect(Outlook.of(law, track.targets, track.level))
            if score > ALARM:
                below = law.cdf(y)
                farthest = max(y, key=lambda name: abs(below[name] - 0.5))
        model.learn_one(x, y)
        if track.observe(number, y, x["time"]):
            track.note(model.relevance)
        found.append((x["time"], score, farthest))
    return pd.DataFrame(found, columns=["time", "score", "farthest"]).set_index("time")


def phases(times: pd.DatetimeIndex, episodes: pd.DataFrame) -> pd.Series:
    """What was going on at each of these times."""
    well, begun, lasting, over = PHASES
    phase = pd.Series(well, index=times)
    for episode in episodes.itertuples():
        phase[episode.end : episode.end + SOON] = over
        phase[episode.start : episode.end] = lasting
        phase[episode.start : episode.start + SOON] = begun
    return phase


def draw_strangeness(scores: pd.Series, episodes: pd.DataFrame) -> Figure:
    """Scores over time as powers of ten, episodes shaded."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained", dpi=120)
    ax = figure.subplots()
    rarity = 1.0 - scores.iloc[FIRST_ROWS:]
    ax.semilogy(rarity.index, rarity, ".", ms=2.5)
    ax.axhline(1.0 - ALARM, color="black", lw=0.8)
    ax.invert_yaxis()
    ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))
    ax.set(ylabel="1 − score, strange at the top", xlabel="time")
    shade(figure, episodes, scores.index[-1])
    return figure


def shade(figure: Figure, episodes: pd.DataFrame, last: pd.Timestamp) -> None:
    """Mark the episodes in every panel."""
    for ax in figure.axes:
        for start, end in zip(episodes["start"], episodes["end"].clip(upper=last), strict=True):
            ax.axvspan(start, end, color="tab:red", alpha=0.15, lw=0)


def main() -> None:
    """Watch, compare with the truth, draw, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-watch_a_turbine"), help="for figures")
    folder = parser.parse_args().folder

    turbine = WindTurbine(seed=0, rate=0.1, faults=True)
    model, track = MOMoGPRegressor(clock="time", seed=0), Track(WindTurbine.TARGETS)
    rows = watch(turbine, model, track)
    episodes = turbine.episodes(N_ROWS)
    rows["phase"] = phases(rows.index, episodes)
    alarms = rows.iloc[FIRST_ROWS:].query("score > @ALARM")

    print(f"{N_ROWS:,} rows of ten seconds, predicted and then learnt\n{track.summary.round(2).to_string()}\n")
    print("What was wrong, and the alarms meanwhile")
    for episode in episodes.itertuples():
        meanwhile = alarms[episode.start : episode.end].index
        first = f", the first after {(meanwhile[0] - episode.start).total_seconds():.0f} s" if len(meanwhile) else ""
        when = f"{episode.start:%a %H:%M} to {episode.end:%a %H:%M}"
        print(f"  {when}  {episode.kind} ({episode.channel}): {len(meanwhile)} alarms{first}")

    in_episodes = int(alarms["phase"].isin(PHASES[1:3]).sum())
    print(f"\n{len(alarms)} alarms: {in_episodes} during episodes, {len(alarms) - in_episodes} at other times")
    # The first rows are left out of the alarms, and so out of the table.
    n_rows, n_alarms = (
        table["phase"].value_counts().reindex(PHASES, fill_value=0) for table in (rows[FIRST_ROWS:], alarms)
    )
    for phase in PHASES:
        print(f"  {phase:<17}{n_alarms[phase]:3d} of {n_rows[phase]:5,} rows: {n_alarms[phase] / n_rows[phase]:.1%}")
    print("\nThe ten strangest rows")
    print(alarms.nlargest(10, "score").sort_index().to_string(float_format="{:.4f}".format))

    folder.mkdir(parents=True, exist_ok=True)
    scores = plot_scores(track)
    shade(scores, episodes, rows.index[-1])
    figures = {
        "strangeness.png": draw_strangeness(rows["score"], episodes),
        "scores.png": scores,
        "relevance.png": plot_relevance(track),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name)
    facts = {"Alarms": len(alarms), "In episodes": in_episodes}
    write_report(folder / "report.html", track, model, title="A simulated turbine under watch", facts=facts)
    print(f"\nSaved into {folder}: {', '.join(figures)}, report.html")


if __name__ == "__main__":
    main()
