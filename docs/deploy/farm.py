"""A simulated farm that publishes one row of each turbine every ten seconds: python farm.py BROKER."""

from __future__ import annotations

import json
import sys
import time

import paho.mqtt.client as mqtt

from momostream.datasets import WindFarm

SECONDS, N_TURBINES = 10.0, 12


def main() -> None:
    """Publish rows until the end."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="farm")
    client.connect_async(sys.argv[1])
    client.loop_start()
    for number, (key, x, _) in enumerate(WindFarm(N_TURBINES, rate=1 / 600)):
        if number % N_TURBINES == 0:
            time.sleep(SECONDS)
        names = ("power", "generator_temperature")
        row = {"turbine": key, "n": number // N_TURBINES + 1, "time": x["time"].isoformat()}
        client.publish(f"farm/{key}/rows", json.dumps(row | {name: x[name] for name in names}), qos=1)


if __name__ == "__main__":
    main()
