"""Feeds for the command line, commands in this process and in others, and what they write."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from momostream.cli.app import app
from momostream.storage import container
from momostream.storage.models import to_tree
from momostream.storage.store import Store

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "momostream"]
QUICK = ["--set", "experts=('last value', 'own lags')"]
FORECAST = ["-t", "power", "-t", "wind", "--horizon", "3", *QUICK]
SOFT = ["-t", "power", "-i", "wind"]
BY_TURBINE = ["--key", "turbine"]


def feed_text(n, seed=0):
    rng = np.random.default_rng(seed)
    wind, lines = 8.0, ["time,wind,pitch,power,state"]
    for t in range(n):
        wind += 0.2 * (8.0 - wind) + 0.5 * rng.normal()
        stamp = f"2024-03-{1 + t // 144:02d} {t // 6 % 24:02d}:{10 * (t % 6):02d}"
        lines.append(f"{stamp},{wind:.3f},{rng.uniform(0, 4):.2f},{wind**3 + rng.normal():.2f},on")
    return "\n".join(lines) + "\n"


MACHINES = ("T01", "T02", "T03")


def farm_text(n, machines=MACHINES):
    """Rows of several machines in turn."""
    header, *_ = feed_text(1).splitlines()
    columns = [[f"{name},{line}" for line in feed_text(n, seed).splitlines()[1:]] for seed, name in enumerate(machines)]
    return "\n".join([f"turbine,{header}", *(line for lines in zip(*columns, strict=True) for line in lines)]) + "\n"


def without_last_column(text):
    return "".join(line.rsplit(",", 1)[0] + "\n" for line in text.splitlines())


def as_json_lines(text):
    """A CSV as JSON lines, numbers as numbers."""
    records = []
    for row in rows_of(text):
        numbers = {name: float(row[name]) for name in ("wind", "pitch", "power")}
        records.append(json.dumps({name: row[name] for name in ("turbine", "time")} | numbers))
    return "\n".join(records) + "\n"


def call(*arguments, code=0):
    """Run a command in this process; standard output and standard error."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], env=environment, **options)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def lines_of(name):
    return Path(name).read_text().splitlines()


def models_in(name):
    """All models of a store by key, as bytes."""
    with Store(name, read_only=True) as store:
        return {key: container.dumps(*to_tree(store.load(key))) for key in store.keys()}


def load_from(name, key="model"):
    with Store(name, read_only=True) as store:
        return store.load(key)


def read(*arguments):
    """What a store keeps, as objects."""
    return [json.loads(line) for line in call("read", *arguments)[0].splitlines()]


def wait_for(happens, seconds=120.0):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
