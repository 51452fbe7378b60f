"""Forecasts of a streaming DataFrame on Spark: one model per key, kept in the state of the query.

`forecast_stream` groups the rows of a frame by key, sorts them by time, and hands them to `take_rows`, as a run on one
machine does. Between two batches, a model is kept in the state of the query, cut into blocks, of which a batch writes
those that have changed. Nothing stays in the memory of a worker, so that a batch that is repeated after a failure
starts where the batch before it ended.

Needs the extra ``spark``: PySpark 4, with Arrow and protobuf.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import isinf, isnan
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from threadpoolctl import threadpool_limits

from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, Step, make_model, take_rows
from momostream.storage.blocks import POSITION_BITS, Parts

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

    from momostream.storage.blocks import Model

__all__ = ["METRICS", "SETTINGS", "dead_letters", "forecast_stream", "forecasts", "models"]

_STATE_STORE = "spark.sql.streaming.stateStore"
#: Settings that a session needs. Without the second, every batch would write files of all keys, not only the changes.
SETTINGS = {
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
#: Name under which the progress of a query counts the predictions and the rejected rows (``refused``) of each batch.
METRICS = "momostream"

_BLOCKS = "blocks"
# Blocks that are not full go into the state together, those of 16 arrays: calls are expensive, not bytes.
_BUNDLE_BITS = POSITION_BITS // 2 + 4
_NUMBER_AND_SIZE = Struct("<qi")
# Checkpoints call the number of a block its place.
_NUMBER = T.StructType([T.StructField("place", T.LongType())])
_BLOCK = T.StructType([T.StructField("block", T.BinaryType())])
_SIDES = ("", " lower", " upper")
# Instead of null, which pandas would turn into floats: a time that numpy reads as NaT, and an offset that no broker
# has.
_NO_TIME, _NO_OFFSET = int(np.iinfo(np.int64).min), -1
# In microseconds.
_DAY, _SECOND = 86_400_000_000, 1_000_000


def forecast_stream(
    frame: DataFrame,
    plan: Plan,
    settings: Mapping[str, Any] | None = None,
    *,
    offset: str | None = None,
    block_bytes: int = 4096,
) -> DataFrame:
    """Predict, then learn, the rows of a streaming frame; with a horizon learn, then forecast.

    Parameters
    ----------
    frame
        Streaming rows with a key (strings or integers), a time (timestamps or numbers) and columns of numbers. Null and
        NaN are missing readings.
    plan
        Targets and inputs; ``key`` and ``time`` have to be named.
    settings
        Further parameters of the models, see `momostream.runs.plan.make_model`.
    offset
        Column of integers or strings with the position of a row in its source, which is passed on with it. Rows of one
        key and time are taken in its order.
    block_bytes
        Size of the blocks that models are cut into. Smaller ones mean fewer bytes per batch, and more calls.

    Returns
    -------
    DataFrame
        Streaming: key, time and offset of the row, ``reason`` and ``row`` (as JSON) if it was rejected, ``step`` and
        ``step time`` of forecasts, and for each target its mean and both ends of its interval, named as in
        `momostream.feeds.outputs.PredictionLines`: ``power``, ``power lower``, ``power upper``. Unknown and infinite
        values are null.

    Notes
    -----
    Within a batch, rows of a key are sorted by time. A row that is not later than the last one learnt, in whichever
    batch that came, is late or has come twice: it is rejected, as are rows without key or time, and those that cannot
    be learnt. Rejected rows are rows of the result: see `forecasts` and `dead_letters`. Write all rows to one sink, and
    select when reading it: two queries would both learn.

    Timestamps are instants, and models see them in UTC, whichever time zone the session has. Models see timestamps
    without time zone as they are.

    A fresh model starts without knowledge of other keys: as in ``Fleet(..., warm_start=False)``.
    """
    if plan.key is None or plan.time is None:
        raise ValueError("a stream needs the names of its key and of its time: set both in the plan")
    if not frame.isStreaming:
        raise ValueError("the frame is not a stream: use readStream")
    _check_session(frame.sparkSession)
    # Before any worker: mistakes in the settings show here.
    make_model(plan, settings)
    types = {field.name: field.dataType for field in frame.schema}
    _check_columns(types, plan, offset)
    layout = _Layout(types, plan, offset)
    is_text = isinstance(types[plan.key], T.StringType)
    processor = _ModelProcessor(plan, settings, block_bytes, is_text, layout.is_number, list(layout.fields))
    found = (
        frame.select(layout.given()).groupBy("key")
        .transformWithStateInPandas(processor, layout.schema, "Append", "None")
    )  # fmt: skip
    rejected = F.col("reason").isNotNull()
    first = ~rejected if plan.horizon is None else F.col("step") == 1
    # The second name is that of progress reports since 0.1.
    counts = F.count_if(first).alias("predicted"), F.count_if(rejected).alias("refused")
    return found.select(*(column.alias(name) for name, column in layout.result().items())).observe(METRICS, *counts)


class _Layout:
    """Columns on their way: as the processor gets them, as it returns them (`fields`), and as the caller sees them."""

    def __init__(self, types: Mapping[str, T.DataType], plan: Plan, offset: str | None) -> None:
        assert plan.key is not None and plan.time is not None
        self.types, self.plan, self.offset = types, plan, offset
        self.key, self.time = plan.key, plan.time
        self.is_number = isinstance(types[plan.time], T.NumericType)
        self.has_text_offset = offset is not None and isinstance(types[offset], T.StringType)

    @property
    def no_offset(self) -> Column:
        """Instead of a null offset."""
        return F.lit("" if self.has_text_offset else _NO_OFFSET)

    def given(self) -> list[Column]:
        """Columns for the processor."""
        columns = [
            # A text that is never null: in pandas, integers with gaps are floats.
            F.coalesce(F.trim(_column(self.key).cast("string")), F.lit("")).alias("key"),
            _time_given(_column(self.time), self.types[self.time]).alias("time"),
            # One column, as each takes time in every batch of every key.
            F.array([_column(name).cast("double") for name in self.plan.columns]).alias("values"),
        ]
        if self.offset is not None:
            value = _column(self.offset).cast("string" if self.has_text_offset else "long")
            columns.append(F.coalesce(value, self.no_offset).alias("offset"))
        return columns

    @property
    def fields(self) -> dict[str, T.DataType]:
        """Types of the columns that the processor returns."""
        time = T.DoubleType() if self.is_number else T.LongType()
        fields: dict[str, T.DataType]
        fields = {"key": T.StringType(), "time": time, "reason": T.StringType(), "row": T.StringType()}
        if self.offset is not None:
            fields["offset"] = T.StringType() if self.has_text_offset else T.LongType()
        if self.plan.horizon is not None:
            fields |= {"step": T.IntegerType(), "step time": time}
        return fields | {"values": T.ArrayType(T.DoubleType())}

    @property
    def schema(self) -> T.StructType:
        """`fields` for Spark."""
        return T.StructType([T.StructField(name, kind) for name, kind in self.fields.items()])

    def result(self) -> dict[str, Column]:
        """Columns for the caller, with null for missing values."""
        key_type, time_type = self.types[self.key], self.types[self.time]
        found = {
            self.key: F.nullif("key", F.lit("")).cast(key_type),
            self.time: _time_found(F.col("time"), time_type),
        }
        if self.offset is not None:
            found[self.offset] = F.nullif("offset", self.no_offset).cast(self.types[self.offset])
        found |= {"reason": F.col("reason"), "row": F.col("row")}
        if self.plan.horizon is not None:
            found |= {"step": F.nullif("step", F.lit(0)), "step time": _time_found(F.col("`step time`"), time_type)}
        for n, name in enumerate(_predicted(self.plan)):
            value = F.get("values", F.lit(n))
            # To Spark, NaN is larger than every other number.
            found[name] = F.when(F.abs(value) < F.lit(np.inf), value)
        return found


def forecasts(frame: DataFrame) -> DataFrame:
    """Predictions among the rows of a result of `forecast_stream`, or of a sink that it was written to."""
    return frame.where(F.col("reason").isNull()).drop("reason", "row")


def dead_letters(frame: DataFrame) -> DataFrame:
    """Rejected rows, with the reason, in a result of `forecast_stream`, or in a sink that it was written to."""
    upto = frame.columns.index("row") + 1
    return frame.where(F.col("reason").isNotNull()).select(*map(_column, frame.columns[:upto]))


def models(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> dict[str, Model]:
    """The models of a query after its last batch, by key as text: all of them, in the memory of the driver."""
    state = spark.read.format("statestore").option("stateVarName", _BLOCKS).load(os.fspath(checkpoint))
    entries: dict[str, dict[int, bytes]] = {}
    for key, number, block in state.select("key.key", "user_map_key.place", "user_map_value.block").collect():
        entries.setdefault(key, {})[number] = bytes(block)
    return {key: _model(entries[key]) for key in sorted(entries)}


def _entries(model: Model, block_bytes: int) -> dict[int, bytes]:
    """A model as entries of the state: full blocks by their number, others in bundles, which have negative numbers."""
    entries: dict[int, bytes] = {}
    for number, block in Parts.of(model).changes({}, block_bytes).write.items():
        if len(block) == block_bytes:
            entries[number] = block
        else:
            bundle = -1 - (number >> _BUNDLE_BITS)
            entries[bundle] = entries.get(bundle, b"") + _NUMBER_AND_SIZE.pack(number, len(block)) + block
    return entries


def _model(entries: Mapping[int, bytes]) -> Model:
    """The model that has these entries."""
    blocks: dict[int, bytes] = {}
    for number, entry in entries.items():
        if number >= 0:
            blocks[number] = entry
            continue
        at = 0
        while at < len(entry):
            inner, size = _NUMBER_AND_SIZE.unpack_from(entry, at)
            at += _NUMBER_AND_SIZE.size + size
            blocks[inner] = entry[at - size : at]
    return Parts.join(blocks)


class _ModelProcessor(StatefulProcessor):
    """Takes the rows of one key after the other: joins its model from blocks, and cuts it into blocks again."""

    def __init__(
        self,
        plan: Plan,
        settings: Mapping[str, Any] | None,
        block_bytes: int,
        is_text: bool,
        is_number: bool,
        columns: list[str],
    ) -> None:
        self._plan, self._settings, self._block_bytes = plan, settings, block_bytes
        self._is_text, self._is_number, self._columns = is_text, is_number, columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        # As in a run: the number of threads changes the last bits.
        threadpool_limits(1, "blas")
        self._blocks = handle.getMapState(_BLOCKS, _NUMBER, _BLOCK)
        self._template = make_model(self._plan, self._settings)

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        (text,) = key
        name = None if not text else text if self._is_text else int(text)
        given, taken = self._rows(name, pd.concat(list(rows), ignore_index=True))
        steps = [Step(row, None, "the key is missing") for row in taken] if name is None else self._take(name, taken)
        if lines := self._lines(text, steps, given):
            yield pd.DataFrame(lines, columns=self._columns)

    def _rows(self, key: str | int | None, given: pd.DataFrame) -> tuple[list[tuple[Any, Any]], list[Row]]:
        """Time and offset as they were given, and the rows, both in order."""
        times, X = given["time"].to_numpy(), np.stack(given["values"].to_list())
        offsets = np.array(given["offset"].to_list() if "offset" in given else [_NO_OFFSET] * len(given))
        # Down to the values: of rows with the same time, the one to learn must not depend on which task was faster.
        order = np.lexsort((*X.T[::-1], offsets, times))
        times, offsets = times[order], offsets[order]
        seen = (times if self._is_number else times.view("datetime64[us]")).tolist()
        rows = []
        for n, (time, values) in enumerate(zip(seen, X[order].tolist(), strict=True)):
            cells = zip(self._plan.columns, values, strict=True)
            rows.append(Row(n, n, time, {name: value for name, value in cells if not isnan(value)}, key))
        return list(zip(times.tolist(), offsets.tolist(), strict=True)), rows

    def _take(self, key: str | int, rows: list[Row]) -> list[Step]:
        """Predict and learn the rows of a key: read its model from the state, and write back what has changed."""
        before = {number: bytes(block) for (number,), (block,) in self._blocks.iterator()}
        fleet = Fleet(self._template, warm_start=False)
        if before:
            fleet.add(key, _model(before))
        steps = take_rows(fleet, self._plan, key, [row for row in rows if not _time_trouble(row.time)])
        steps += [Step(row, None, trouble) for row in rows if (trouble := _time_trouble(row.time))]
        model = fleet.peek(key)
        after = before if model is None else _entries(model, self._block_bytes)
        for number, block in after.items():
            if before.get(number) != block:
                self._blocks.updateValue((number,), (block,))
        for number in before.keys() - after.keys():
            self._blocks.removeKey((number,))
        return steps

    def _lines(self, key: str, steps: list[Step], given: list[tuple[Any, Any]]) -> list[list[Any]]:
        """Cells by line: one line for each step of a prediction, and one for each rejected row."""
        never = np.nan if self._is_number else _NO_TIME
        lines = []

        def add(row: Row, values: Any, step: int = 0, at: Any = never, reason: str | None = None) -> None:
            time, offset = given[row.number]
            cells = {
                "key": key, "time": time, "offset": offset, "reason": reason,
                "row": None if reason is None else row.text(), "step": step, "step time": at, "values": values,
            }  # fmt: skip
            lines.append([cells[name] for name in self._columns])

        predictions = [step.prediction for step in steps if step.prediction is not None]
        found = iter(PredictedValues.many(predictions, self._plan.targets, self._plan.level))
        for step in steps:
            if step.reason is not None:
                add(step.row, None, reason=step.reason)
            elif step.prediction is not None:
                predicted = next(found)
                values = np.stack([predicted.mean, predicted.lower, predicted.upper], axis=2)
                ats = [never] * len(values) if predicted.times is None else self._plain(predicted.times)
                for n, (at, line) in enumerate(zip(ats, values.reshape(len(values), -1), strict=True), 1):
                    add(step.row, line, n, at)
        return lines

    def _plain(self, times: NDArray[Any]) -> list[Any]:
        return (times if self._is_number else times.astype("datetime64[us]").view(np.int64)).tolist()


def _time_trouble(time: Any) -> str | None:
    """The reason to reject a row with this time, or None."""
    if time is None or (isinstance(time, float) and isnan(time)):
        return "the time is missing"
    if isinstance(time, int):
        return "the time is out of range: use years from 1 to 9999"
    if isinstance(time, float) and isinf(time):
        return "the time is infinite"
    return None


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _time_given(time: Column, kind: T.DataType) -> Column:
    """Microseconds since 1970, or numbers as they are, without null."""
    if isinstance(kind, T.NumericType):
        return F.coalesce(time.cast("double"), F.lit(np.nan))
    if isinstance(kind, T.TimestampType):
        return F.coalesce(F.unix_micros(time), F.lit(_NO_TIME))
    # Not through an instant, which would depend on the time zone of the session.
    clock = (F.hour(time) * 3600 + F.minute(time) * 60 + F.extract(F.lit("SECOND"), time)) * _SECOND
    days = F.unix_date(time.cast("date")).cast("long")
    return F.coalesce(days * F.lit(_DAY) + clock.cast("long"), F.lit(_NO_TIME))


def _time_found(time: Column, kind: T.DataType) -> Column:
    """Times of the kind that was given."""
    if isinstance(kind, T.NumericType):
        return F.when(~F.isnan(time), time).cast(kind)
    known = F.when(time != _NO_TIME, time)
    if isinstance(kind, T.TimestampType):
        return F.timestamp_micros(known)
    return F.timestamp_add("MICROSECOND", known, F.lit("1970-01-01").cast("timestamp_ntz"))


def _predicted(plan: Plan) -> list[str]:
    return [name + side for name in plan.targets for side in _SIDES]


def _check_session(spark: SparkSession) -> None:
    name = f"{_STATE_STORE}.providerClass"
    if not (spark.conf.get(name) or "").endswith("RocksDBStateStoreProvider"):
        raise ValueError(f"the session does not keep its state in RocksDB: set {name}={SETTINGS[name]}")


def _check_columns(types: Mapping[str, T.DataType], plan: Plan, offset: str | None) -> None:
    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    kinds: list[tuple[str | None, tuple[type[T.DataType], ...], str]] = [
        (plan.key, (T.StringType, *whole), "strings or integers"),
        (plan.time, (T.TimestampType, T.TimestampNTZType, T.NumericType), "timestamps or numbers"),
        (offset, (T.StringType, *whole), "strings or integers"),
        *((name, (T.NumericType,), "numbers") for name in plan.columns),
    ]
    for name, accepted, words in kinds:
        if name is None:
            continue
        if name not in types:
            raise ValueError(f"there is no column {name!r}: use one of {', '.join(map(repr, types))}")
        if not isinstance(types[name], accepted):
            raise ValueError(f"column {name!r} holds {types[name].simpleString()}: cast it to {words}")
    steps = () if plan.horizon is None else ("step", "step time")
    names = [name for name in (plan.key, plan.time, offset, "reason", "row", *steps, *_predicted(plan)) if name]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"two columns of the result would be called {twice[0]!r}: rename that column of the frame")
