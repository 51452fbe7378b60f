"""`Results`: the parts of a run that are shown: its scores, its newest rows and its newest prediction."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row
from momostream.runs.plan import Plan, shares
from momostream.runs.scores import Track

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results"]

# Rows that are kept to be drawn in front of the last forecast.
N_RECENT = 240


def _n_steps(plan: Plan) -> int:
    # The track grows as soon as a span is known in steps.
    return plan.horizon if isinstance(plan.horizon, int) else 1


class Results:
    """Scores so far, the newest rows and the newest prediction of a run.

    Parameters
    ----------
    plan
        Columns to predict, columns to predict from, and the time.

    Attributes
    ----------
    track : Track or None
        Scores so far; None for a feed with keys.
    predicted : PredictedValues or None
        The newest prediction.
    recent : deque of Row
        The newest rows.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.track = None if plan.key is not None else Track(plan.targets, _n_steps(plan), plan.level)
        self.predicted: PredictedValues | None = None
        self.recent: deque[Row] = deque(maxlen=N_RECENT)

    def score(self, row: Row, predicted: PredictedValues | None) -> bool:
        """Score a row against what was predicted for it; ``predicted`` is what was predicted at this row.

        Returns whether a block of rows is complete: the moment for `note`.
        """
        if self.track is None:
            return False
        _, y = self.plan.split(row)
        # The distribution of a row is about that row, a forecast about those that follow.
        if predicted is not None and self.plan.horizon is None:
            self.track.expect(predicted)
        complete = self.track.observe(row.number, y, row.time)
        if predicted is not None and self.plan.horizon is not None:
            self.track.expect(predicted)
        return complete

    def note(self, model: Any) -> None:
        """Keep the current shares of the model's inputs, or of its experts."""
        if self.track is not None:
            self.track.note(shares(model))

    def note_alarms(self, texts: Sequence[str]) -> None:
        """Keep the newest alarms."""
        if self.track is not None:
            self.track.lookback.note_alarms(texts)

    def keep(self, row: Row, predicted: PredictedValues | None) -> None:
        """Keep a row and what was predicted at it, as the newest."""
        self.recent.append(row)
        if predicted is not None:
            self.predicted = predicted

    @property
    def history(self) -> pd.DataFrame:
        """Targets of the newest rows, by time if rows have one."""
        import pandas as pd

        rows = list(self.recent)
        frame = pd.DataFrame([row.values for row in rows], columns=list(self.plan.targets), dtype=float)
        timed = self.plan.time is not None
        return frame.set_axis(pd.Index([row.time if timed else row.number for row in rows]))
