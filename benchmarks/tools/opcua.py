"""An OPC UA server for tests in a process of its own: asyncua's, with machines whose values come from outside."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Self

from benchmarks.tools.brokers import free_port

PATIENCE = 30.0
USER, PASSWORD = "ann", "only-for-tests"

_SERVER = """
import asyncio, json, sys
from datetime import datetime
from asyncua import Server, ua
from asyncua.server.user_managers import UserManager
from asyncua.crypto.permission_rules import User, UserRole

port, columns, machines, history, login, certificates = json.loads(sys.argv[1])

class Users(UserManager):
    def get_user(self, iserver, username=None, password=None, certificate=None):
        if login and [username, password] != login:
            return None
        return User(role=UserRole.User)

async def main():
    server = Server(user_manager=Users())
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/plant")
    if certificates:
        await server.load_certificate(f"{certificates}/server.pem")
        await server.load_private_key(f"{certificates}/server-key.pem")
        server.set_security_policy([ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
    else:
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    space = await server.register_namespace("plant")
    plant = await server.nodes.objects.add_object(space, "Plant")
    nodes, sensors = {}, {}

    async def add(machine):
        folder = await plant.add_object(space, machine)
        sensors[machine] = await folder.add_object(space, "Sensors")
        for column in columns:
            nodes[machine, column] = await sensors[machine].add_variable(space, column, 0.0)
        if history:
            await server.historize_node_data_change([nodes[machine, column] for column in columns], None, 100_000)

    async with server:
        for machine in machines:
            await add(machine)
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            machine, column, time, value = json.loads(line)
            if (machine, column) not in nodes:
                await add(machine)
            status = ua.StatusCode(ua.StatusCodes.BadSensorFailure) if value is None else ua.StatusCode()
            variant = ua.Variant(0.0 if value is None else float(value))
            data = ua.DataValue(variant, status, SourceTimestamp=datetime.fromisoformat(time))
            await nodes[machine, column].write_value(data)
            print("written", flush=True)

asyncio.run(main())
"""


def missing_opcua() -> str | None:
    """Why tests with OPC UA cannot run here; None if they can."""
    return None if importlib.util.find_spec("asyncua") else "needs asyncua: pip install 'momostream[opcua]'"


class OpcUaServer:
    """A server on a port of the loopback, which keeps its port over restarts, and forgets everything else.

    Parameters
    ----------
    columns, machines
        Variables of each machine, below Objects/Plant/MACHINE/Sensors.
    history
        Whether it keeps the history of all values, in memory.
    login
        Whether `USER` must log in.
    certificates
        Folder with ``server.pem`` and ``server-key.pem``: all connections are signed and encrypted.
    """

    def __init__(
        self,
        columns: Sequence[str],
        machines: Sequence[str],
        history: bool = False,
        login: bool = False,
        certificates: str | None = None,
    ) -> None:
        self.port = free_port()
        known = [USER, PASSWORD] if login else None
        self._about = [self.port, list(columns), list(machines), history, known, certificates]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def url(self, nodes: str = "Plant/{turbine}/Sensors/{column}", user: str = "", **settings: str) -> str:
        """Of its nodes."""
        more = "".join(f"&{name}={value}" for name, value in settings.items())
        return f"opc.tcp://{user}127.0.0.1:{self.port}/plant?nodes={nodes}{more}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command, pipe = [sys.executable, "-c", _SERVER, json.dumps(self._about)], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._expect("ready")

    def write(self, machine: str, column: str, time: datetime, value: Any) -> None:
        """Write a value with the time of its source; None is one of a sensor that has failed."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([machine, column, time.astimezone(UTC).isoformat(), value]) + "\n")
        self._process.stdin.flush()
        self._expect("written")

    def _expect(self, word: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        guard = threading.Timer(PATIENCE, self._process.kill)
        guard.start()
        found = self._process.stdout.readline().strip()
        guard.cancel()
        if found != word:
            raise RuntimeError(f"the server answered {found!r} instead of {word!r}")

    def kill(self) -> None:
        """SIGKILL: connections break off, and all it had is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None
