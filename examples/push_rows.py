"""Push rows to `momostream serve` so that each is learnt once, whatever happens to the server or the network.

Start the server in another terminal, with the farm.toml of docs/operate.md, then run this file:

    momostream serve farm.toml
    python examples/push_rows.py http://127.0.0.1:8080/

Without an address, it starts a server of its own in a temporary folder, and ends it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from momostream.datasets import WindFarm

FARM = """
[serve]
address = "127.0.0.1:0"
[feeds.north]
key = "turbine"
time = "time"
sequence = "n"
targets = ["power", "generator_temperature"]
horizon = 6
"""


def rows(n_rows: int) -> Iterator[dict[str, object]]:
    """Rows of three simulated turbines, numbered by turbine."""
    for number, (key, x, _) in enumerate(WindFarm(3, rate=1 / 600).take(3 * n_rows)):
        values = {name: x[name] for name in ("power", "generator_temperature")}
        yield {"turbine": key, "n": number // 3 + 1, "time": x["time"].isoformat(), **values}


def push(client: httpx.Client, batch: list[dict[str, object]]) -> dict[str, int]:
    """Send a batch until the server has it: rows that it knows already are dropped there."""
    body = "\n".join(map(json.dumps, batch))
    while True:
        try:
            answer = client.post("/feeds/north/rows", content=body)
        except httpx.TransportError:
            time.sleep(1.0)
            continue
        if answer.status_code in {429, 503, 507}:
            time.sleep(float(answer.headers.get("retry-after", 1)))
            continue
        answer.raise_for_status()
        return answer.json()


@contextmanager
def own_server() -> Iterator[str]:
    """A server in this process."""
    from momostream.cli.serve import request_for
    from momostream.serve.config import read_config_text
    from momostream.serve.server import FeedWorker, PageServer
    from momostream.serve.state import FeedState

    with tempfile.TemporaryDirectory() as folder:
        farm = read_config_text(FARM, folder=Path(folder))
        state = FeedState(farm.feeds[0])
        worker = FeedWorker(state, request_for(farm, farm.feeds[0]).opener(farm), None)
        server = PageServer([state], farm.serve)
        server.start()
        worker.start()
        try:
            yield server.address
        finally:
            worker.stop()
            worker.join()
            server.stop()


def main(address: str) -> None:
    """Push rows, then ask for a forecast and a risk."""
    token = os.environ.get("MOMOSTREAM_WRITE_TOKEN")
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=30.0) as client:
        batch = list(rows(60))
        for start in range(0, len(batch), 30):
            print(push(client, batch[start : start + 30]))
        print("again:", push(client, batch[:30])["repeated"], "rows known")
        while client.get("/feeds").json()[0].get("rows", 0) < len(batch):
            time.sleep(0.1)
        (forecast,) = client.get("/feeds/north/forecasts", params={"key": "T01", "levels": "0.1,0.5,0.9"}).json()
        print("power in an hour, 10 %, 50 %, 90 %:", [step[-1] for step in forecast["targets"]["power"]["quantiles"]])
        risk = client.get("/feeds/north/risk", params={"key": "T01", "target": "power", "below": 2000}).json()
        print(f"power falls below 2,000 kW within an hour: {risk['probability']:.0%}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with own_server() as found:
            main(found)
