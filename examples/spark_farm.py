"""Forecast a wind farm on Spark: rows come as files, and a table of forecasts comes out.

Ten simulated turbines report eight readings and the bending moments of their blades. Two moments are predicted from the
readings: Spark groups the rows by turbine, and keeps a model of each in the state of the query. Among the rows are two
that cannot be used: one comes a second time, one does not say where it comes from. They appear in the same table, with
a reason. Needs Java 17 and the extra ``spark``. Run it with ``python examples/spark_farm.py``.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from momostream.datasets import WindFarm, WindTurbine
from momostream.runs.plan import Plan
from momostream.spark import METRICS, SETTINGS, dead_letters, forecast_stream, forecasts, models

N_TURBINES, N_FILES, ROWS_PER_FILE = 10, 3, 30
PLAN = Plan(("flap_1", "edge_1"), WindTurbine.INPUTS, time="time", key="turbine")


def write_rows(folder: Path) -> None:
    """The farm as Parquet files, each with some rows of every turbine; the last one has two that cannot be used."""
    size = N_TURBINES * ROWS_PER_FILE
    rows = WindFarm(N_TURBINES, seed=0).take(N_FILES * size)
    frame = pd.DataFrame([{"turbine": key, **x, **y} for key, x, y in rows])
    # Instants: Spark takes times without a zone for those of the session.
    frame["time"] = frame["time"].dt.tz_localize("UTC")
    keyless = frame.tail(1).assign(turbine=None)
    folder.mkdir()
    for n in range(N_FILES):
        part = frame[n * size : (n + 1) * size]
        if n == N_FILES - 1:
            part = pd.concat([part, frame.iloc[[5]], keyless])
        part.to_parquet(folder / f"{n}.parquet")


def start_spark(log: Path) -> SparkSession:
    """A session on two cores; messages of Java go into a file."""
    # Workers run the same Python as this.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {**SETTINGS, "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    errors = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    finally:
        os.dup2(errors, 2)


def main() -> None:
    """Write rows, stream them, read the results."""
    # PySpark says so at every start.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / "rows")
        spark = start_spark(folder / "spark.log")
        columns = ", ".join(f"`{name}` double" for name in PLAN.columns)
        source = spark.readStream.schema(f"turbine string, time timestamp, {columns}").option("maxFilesPerTrigger", 1)
        made = forecast_stream(source.parquet(str(folder / "rows")), PLAN)
        query = (
            made.writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "made"))
        )
        query.awaitTermination()
        for batch in query.recentProgress:
            counts, state = batch.observedMetrics[METRICS], batch.stateOperators[0]
            print(
                f"batch {batch.batchId}: {batch.numInputRows} rows, {counts.predicted} predicted, "
                f"{counts.refused} rejected, {state.numRowsUpdated} blocks of models written"
            )

        # Through Spark, which knows the files that count.
        table = spark.read.parquet(str(folder / "made"))
        last = forecasts(table).orderBy(F.desc("time"), "turbine").limit(5)
        print("\nThe last forecasts, with intervals of 90 %")
        print(last.toPandas().to_string(index=False, float_format="{:.0f}".format))
        print("\nRefused")
        for row in dead_letters(table).collect():
            print(f"  {row.turbine}: {row.reason}")
        found = models(spark, folder / "checkpoint")
        print(f"\n{len(found)} models, each of {found['T01'].n_rows} rows")
        spark.stop()


if __name__ == "__main__":
    main()
