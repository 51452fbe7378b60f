"""Lines that a run writes: predictions, alarms and dead letters, each through a `Channel`.

A channel that ends in a file is written at once; the file is cut back to the last commit when a run resumes. Texts for
a broker, or for the store itself, wait for the next commit. The store keeps those for a broker until it has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from momostream.distributions.predicted import PredictedValues
from momostream.estimators.monitor import FaultEvent
from momostream.feeds.brokers import Outlet
from momostream.feeds.formats import Row
from momostream.feeds.outputs import PredictionLines, Sink, Written, alarm_texts, event_text
from momostream.runs.lookout import ForecastAlarm
from momostream.runs.plan import Plan, Step
from momostream.storage.lines import letter_text
from momostream.storage.store import DeadLetter, Output, Store

__all__ = ["ONLY", "Channel", "Channels", "OutputLine", "letter_text", "model_key"]

#: Key of the model of a feed without keys.
ONLY = "model"
# Lines that are sent to a broker at once.
N_SENT = 5000


def model_key(key: Any) -> Any:
    """The key of the model for a row with this key: rows without keys share the model `ONLY`."""
    return ONLY if key is None else key


class Channel:
    """One kind of texts and their destination: predictions, alarms or dead letters.

    Parameters
    ----------
    table
        Of the store: one of `momostream.storage.store.LINES`.
    target
        A `Sink` is written at once, and cut back when a run resumes. An outlet of `momostream.feeds.brokers` gets what
        has been committed, again and again until it confirms. None: the store keeps the texts.
    keeps
        The store also keeps what an outlet has got, for others who read it; the outlet must know its last number.
    """

    def __init__(self, table: str, target: Sink | Outlet | None = None, keeps: bool = False) -> None:
        self.table, self.keeps = table, keeps
        self.sink = target if isinstance(target, Sink) else None
        self.outlet = None if isinstance(target, Sink) else target
        self.waiting: list[Output] = []

    def add(self, key: Any, offset: int, text: str) -> None:
        """Write a text to the file, or let it wait for the next commit."""
        if self.sink is not None:
            self.sink.write(text)
        else:
            self.waiting.append(Output(key, offset, text))

    def deliver(self, store: Store) -> bool:
        """Send what has been committed; return whether something arrived, which the next commit removes."""
        arrived = False
        while self.outlet is not None:
            after = self.outlet.last_number() if self.keeps else 0
            lines = [] if after is None else list(islice(self._committed(store, after), N_SENT))
            last = self.outlet.send(lines) if lines else 0
            if not last:
                break
            if not self.keeps:
                store.forget(self.table, last)
                arrived = True
            if last < lines[-1][0]:
                break
        return arrived

    def _committed(self, store: Store, after: int) -> Iterator[tuple[int, Any, str]]:
        if self.table == "dead":
            return ((number, letter.key, letter_text(letter)) for number, letter in store.dead(after))
        found = store.outputs(after) if self.table == "outputs" else store.alarms(after)
        return ((number, output.key, output.text) for number, output in found)


class OutputLine(NamedTuple):
    """A text on its way to a channel, with the number, key and offset of its row."""

    number: int
    channel: Channel
    key: Any
    offset: int
    text: str


def _text(row: Row, event: FaultEvent | ForecastAlarm) -> str:
    return event.text(row) if isinstance(event, ForecastAlarm) else event_text(row, event)


class Channels:
    """The channels of a run, and the texts that go into them.

    Parameters
    ----------
    plan
        Columns to predict, columns to predict from, and the time.
    alarm_level
        Probability of the interval that a value must leave to be an alarm.

    Attributes
    ----------
    predictions, alarms, dead : Channel or None
        Texts of a kind without a channel are not written; the store has the dead letters in any case.
    lines : PredictionLines or None
        Format of the predictions.
    letters : list of DeadLetter
        Rejected rows since the last commit, if there is a store.
    """

    def __init__(self, plan: Plan, alarm_level: float) -> None:
        if not 0.0 < alarm_level < 1.0:
            raise ValueError(f"alarm_level={alarm_level} is not accepted: use a number between 0 and 1")
        self.plan, self.alarm_level = plan, alarm_level
        self.predictions: Channel | None = None
        self.alarms: Channel | None = None
        self.dead: Channel | None = None
        self.lines: PredictionLines | None = None
        self.letters: list[DeadLetter] = []

    def __iter__(self) -> Iterator[Channel]:
        return (channel for channel in (self.predictions, self.alarms, self.dead) if channel is not None)

    # ------------------------------------------------------------------ texts

    def alarm_lines(self, steps: Sequence[Step]) -> list[OutputLine]:
        """Events that begin or end with these rows, and alarms for the values outside their intervals."""
        if self.alarms is None:
            return []
        events = [
            OutputLine(step.row.number, self.alarms, model_key(step.row.key), step.row.offset, _text(step.row, event))
            for step in steps
            for event, _ in step.news()
        ]
        watched = [(step.row, step.expected) for step in steps if step.expected is not None]
        expected = PredictedValues.many([each for _, each in watched], self.plan.targets, self.alarm_level)
        return events + [
            OutputLine(row.number, self.alarms, model_key(row.key), row.offset, text)
            for (row, _), values in zip(watched, expected, strict=True)
            for text in alarm_texts(row, values, self.plan.targets, self.alarm_level)
        ]

    def prediction_lines(self, row: Row, predicted: PredictedValues) -> list[OutputLine]:
        """The prediction that was made at a row, as text."""
        if self.predictions is None or self.lines is None:
            return []
        text = self.lines.text(row, predicted)
        return [OutputLine(row.number, self.predictions, model_key(row.key), row.offset, text)]

    def write(self, lines: list[OutputLine]) -> None:
        """Hand lines to their channels, in the order of the rows."""
        lines.sort(key=lambda line: line.number)
        for _, channel, key, offset, text in lines:
            channel.add(key, offset, text)

    def reject(self, letter: DeadLetter, in_store: bool) -> None:
        """Write a dead letter: to its file at once, and to the store with the next commit."""
        if in_store:
            self.letters.append(letter)
        if self.dead is not None and self.dead.sink is not None:
            self.dead.sink.write(letter_text(letter))

    # ------------------------------------------------------------------ files and brokers

    def flush(self) -> None:
        """Let others see what was written to files."""
        for channel in self:
            if channel.sink is not None:
                channel.sink.flush()

    def sync(self) -> dict[str, Written | None]:
        """Bring files to the disk; by table, how far each has been written.

        Only those of this run: a file that is no longer written must not be continued later, as if nothing had been
        left out in between.
        """
        sinks = {channel.table: channel.sink for channel in self if channel.sink is not None}
        return {table: sink.commit() for table, sink in sinks.items()}

    def waiting(self, table: str) -> Sequence[Output]:
        """Texts for a table of the store that wait for the next commit."""
        return next((channel.waiting for channel in self if channel.table == table), ())

    def clear(self) -> None:
        """Forget what a commit has taken."""
        for channel in self:
            channel.waiting.clear()
        self.letters.clear()

    def deliver(self, store: Store) -> None:
        """Send what waits in the store for brokers, and remove what has arrived."""
        if any([channel.deliver(store) for channel in self]):
            store.commit()
