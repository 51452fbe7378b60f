"""Forecasts of a streaming DataFrame on Spark: one model per key, kept in the state of the query.

`forecast_stream` groups the rows of a frame by key, sorts them by time, and does with them what `take_rows` does on one
machine. Between two batches a model rests in the state of the query, cut into blocks, of which a batch writes what has
changed. Nothing stays in the memory of a worker, so that a batch that is repeated after a failure begins where the one
before it ended.

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

from momostream.distributions.values import PredictedValues
from momostream.feeds.rows import Row
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, Step, make_model, take_rows
from momostream.storage.blocks import POSITION_BITS, Parts

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

    from momostream.storage.blocks import Model

__all__ = ["METRICS", "SETTINGS", "dead_letters", "forecast_stream", "forecasts", "models"]

_STATE_STORE = "spark.sql.streaming.stateStore"
#: What a session needs. Without the second line, every batch would write files of all keys, and not what has changed.
SETTINGS = {
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
#: Under this name, the progress of a query counts the predictions and the refused rows of each batch.
METRICS = "momostream"

_BLOCKS = "blocks"
# Blocks that are not full go into the state together, those of 16 arrays: most of a call is not about bytes.
_BUNDLE_BITS = POSITION_BITS // 2 + 4
_PLACE_AND_SIZE = Struct("<qi")
_PLACE = T.StructType([T.StructField("place", T.LongType())])
_BLOCK = T.StructType([T.StructField("block", T.BinaryType())])
_SIDES = ("", " lower", " upper")
# In place of null, of which pandas would make floats: a time that numpy takes for NaT, and no offset of a broker.
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
        Streaming rows with a key (texts or whole numbers), a time (timestamps or numbers) and columns of numbers. Null
        and NaN are missing readings.
    plan
        What is done with each row; ``key`` and ``time`` have to be named.
    settings
        Further parameters of the models, see `momostream.runs.plan.make_model`.
    offset
        Column of whole numbers or texts that tells where a row stands in its source, and is handed on with it. Rows of
        one key and time are taken in its order.
    block_bytes
        Size of the blocks that models are cut into. Smaller ones mean fewer bytes per batch, and more calls.

    Returns
    -------
    DataFrame
        Streaming: key, time and offset of the row, ``reason`` and ``row`` (as JSON) if it was refused, ``step`` and
        ``step time`` of forecasts, and for each target its mean and both ends of its interval, named as in
        `momostream.feeds.outputs.PredictionLines`: ``power``, ``power lower``, ``power upper``. What is not known, or
        infinite, is null.

    Notes
    -----
    Within a batch, rows of a key are sorted by time. A row that is not later than the last one learnt, in whichever
    batch that came, is late or has come twice: it is refused, as are rows without key or time, and those that cannot be
    learnt. Refused rows are rows of the result: see `forecasts` and `dead_letters`. Write them to one sink, and choose
    when reading it: two queries would both learn.

    Timestamps are instants, and models see them in UTC, whichever time zone the session has. Timestamps without time
    zone are seen as they are.

    A fresh model knows nothing of those of other keys: as in ``Fleet(..., kin=False)``.
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
    key_type, time_type = types[plan.key], types[plan.time]
    is_number = isinstance(time_type, T.NumericType)
    given = [
        # A text that is never null: in pandas, whole numbers with gaps are floats.
        F.coalesce(F.trim(_column(plan.key).cast("string")), F.lit("")).alias("key"),
        _time_given(_column(plan.time), time_type).alias("time"),
        # One column, as each takes time in every batch of every key.
        F.array([_column(name).cast("double") for name in plan.columns]).alias("values"),
    ]
    time_field = T.DoubleType() if is_number else T.LongType()
    fields: dict[str, T.DataType]
    fields = {"key": T.StringType(), "time": time_field, "reason": T.StringType(), "row": T.StringType()}
    found = {plan.key: F.nullif("key", F.lit("")).cast(key_type), plan.time: _time_found(F.col("time"), time_type)}
    if offset is not None:
        is_text = isinstance(types[offset], T.StringType)
        nowhere = F.lit("" if is_text else _NO_OFFSET)
        given.append(F.coalesce(_column(offset).cast("string" if is_text else "long"), nowhere).alias("offset"))
        fields["offset"] = T.StringType() if is_text else T.LongType()
        found[offset] = F.nullif("offset", nowhere).cast(types[offset])
    found |= {"reason": F.col("reason"), "row": F.col("row")}
    if plan.horizon is not None:
        fields |= {"step": T.IntegerType(), "step time": time_field}
        found |= {"step": F.nullif("step", F.lit(0)), "step time": _time_found(F.col("`step time`"), time_type)}
    fields["values"] = T.ArrayType(T.DoubleType())
    for n, name in enumerate(_predicted(plan)):
        value = F.get("values", F.lit(n))
        # To Spark, NaN is larger than every other number.
        found[name] = F.when(F.abs(value) < F.lit(np.inf), value)

    processor = _Models(plan, settings, block_bytes, isinstance(key_type, T.StringType), is_number, list(fields))
    schema = T.StructType([T.StructField(name, kind) for name, kind in fields.items()])
    made = frame.select(given).groupBy("key").transformWithStateInPandas(processor, schema, "Append", "None")
    refused = F.col("reason").isNotNull()
    first = ~refused if plan.horizon is None else F.col("step") == 1
    counts = F.count_if(first).alias("predicted"), F.count_if(refused).alias("refused")
    return made.select(*(column.alias(name) for name, column in found.items())).observe(METRICS, *counts)


def forecasts(frame: DataFrame) -> DataFrame:
    """What was predicted: the rows of a result of `forecast_stream`, or of a sink that it was written to."""
    return frame.where(F.col("reason").isNull()).drop("reason", "row")


def dead_letters(frame: DataFrame) -> DataFrame:
    """What was refused, and why: the rows of a result of `forecast_stream`, or of a sink that it was written to."""
    upto = frame.columns.index("row") + 1
    return frame.where(F.col("reason").isNotNull()).select(*map(_column, frame.columns[:upto]))


def models(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> dict[str, Model]:
    """The models of a query by key, as texts, after its last batch: all of them, in the memory of the driver."""
    state = spark.read.format("statestore").option("stateVarName", _BLOCKS).load(os.fspath(checkpoint))
    entries: dict[str, dict[int, bytes]] = {}
    for key, place, block in state.select("key.key", "user_map_key.place", "user_map_value.block").collect():
        entries.setdefault(key, {})[place] = bytes(block)
    return {key: _model(entries[key]) for key in sorted(entries)}


def _entries(model: Model, block_bytes: int) -> dict[int, bytes]:
    """A model as entries of the state: full blocks by place, others in bundles, which have negative places."""
    entries: dict[int, bytes] = {}
    for place, block in Parts.of(model).changes({}, block_bytes).write.items():
        if len(block) == block_bytes:
            entries[place] = block
        else:
            bundle = -1 - (place >> _BUNDLE_BITS)
            entries[bundle] = entries.get(bundle, b"") + _PLACE_AND_SIZE.pack(place, len(block)) + block
    return entries


def _model(entries: Mapping[int, bytes]) -> Model:
    """The model that has these entries."""
    blocks: dict[int, bytes] = {}
    for place, entry in entries.items():
        if place >= 0:
            blocks[place] = entry
            continue
        at = 0
        while at < len(entry):
            place_inside, size = _PLACE_AND_SIZE.unpack_from(entry, at)
            at += _PLACE_AND_SIZE.size + size
            blocks[place_inside] = entry[at - size : at]
    return Parts.join(blocks)


class _Models(StatefulProcessor):
    """The model of one key after the other, put together from its blocks and taken apart again."""

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
        # As in a run: the number of threads changes last bits.
        threadpool_limits(1, "blas")
        self._blocks = handle.getMapState(_BLOCKS, _PLACE, _BLOCK)
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
        # Down to the values: what is learnt of rows of one time must not depend on which task was faster.
        order = np.lexsort((*X.T[::-1], offsets, times))
        times, offsets = times[order], offsets[order]
        seen = (times if self._is_number else times.view("datetime64[us]")).tolist()
        rows = []
        for n, (time, values) in enumerate(zip(seen, X[order].tolist(), strict=True)):
            cells = zip(self._plan.columns, values, strict=True)
            rows.append(Row(n, n, time, {name: value for name, value in cells if not isnan(value)}, key))
        return list(zip(times.tolist(), offsets.tolist(), strict=True)), rows

    def _take(self, key: str | int, rows: list[Row]) -> list[Step]:
        """What becomes of the rows of a key: its model comes out of the state, and goes back into it."""
        before = {place: bytes(block) for (place,), (block,) in self._blocks.iterator()}
        fleet = Fleet(self._template, kin=False)
        if before:
            fleet.add(key, _model(before))
        steps = take_rows(fleet, self._plan, key, [row for row in rows if not _time_trouble(row.time)])
        steps += [Step(row, None, trouble) for row in rows if (trouble := _time_trouble(row.time))]
        model = fleet.peek(key)
        after = before if model is None else _entries(model, self._block_bytes)
        for place, block in after.items():
            if before.get(place) != block:
                self._blocks.updateValue((place,), (block,))
        for place in before.keys() - after.keys():
            self._blocks.removeKey((place,))
        return steps

    def _lines(self, key: str, steps: list[Step], given: list[tuple[Any, Any]]) -> list[list[Any]]:
        """Cells by line: one for each step of a prediction, one for each row that was refused."""
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
        outlooks = iter(PredictedValues.many(predictions, self._plan.targets, self._plan.level))
        for step in steps:
            if step.reason is not None:
                add(step.row, None, reason=step.reason)
            elif step.prediction is not None:
                outlook = next(outlooks)
                values = np.stack([outlook.mean, outlook.lower, outlook.upper], axis=2)
                ats = [never] * len(values) if outlook.times is None else self._plain(outlook.times)
                for n, (at, line) in enumerate(zip(ats, values.reshape(len(values), -1), strict=True), 1):
                    add(step.row, line, n, at)
        return lines

    def _plain(self, times: NDArray[Any]) -> list[Any]:
        return (times if self._is_number else times.astype("datetime64[us]").view(np.int64)).tolist()


def _time_trouble(time: Any) -> str | None:
    """What is wrong with a time, or None."""
    if time is None or (isinstance(time, float) and isnan(time)):
        return "the time is missing"
    if isinstance(time, int):
        return "the time is beyond what Python can tell: use years from 1 to 9999"
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
    # Not by way of an instant, whose clock would be that of the session.
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
        raise ValueError(f"the session keeps its state elsewhere than in RocksDB: set {name}={SETTINGS[name]}")


def _check_columns(types: Mapping[str, T.DataType], plan: Plan, offset: str | None) -> None:
    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    kinds: list[tuple[str | None, tuple[type[T.DataType], ...], str]] = [
        (plan.key, (T.StringType, *whole), "texts or whole numbers"),
        (plan.time, (T.TimestampType, T.TimestampNTZType, T.NumericType), "timestamps or numbers"),
        (offset, (T.StringType, *whole), "texts or whole numbers"),
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
        raise ValueError(f"two columns of the result would have the name {twice[0]!r}: rename one that is given")
