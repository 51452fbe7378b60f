"""A real PostgreSQL server for tests and benchmarks, with its own port and folder; it can be killed at any moment."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benchmarks.tools.brokers import free_port

PATIENCE = 30.0
#: The user of the database, and its password.
USER, PASSWORD = "momo", "only-for-tests"


def find_server() -> Path | None:
    """The folder of the server's programs, where Debian puts them or on the path; None if there is none."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin"), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    return next((folder for folder in sorted(found, reverse=True) if (folder / "initdb").is_file()), None)


def missing_postgres() -> str | None:
    """Why tests with PostgreSQL cannot run here; None if they can."""
    if importlib.util.find_spec("psycopg") is None:
        return "needs psycopg: pip install 'momostream[postgres]'"
    if find_server() is None:
        return "needs the PostgreSQL server: apt install postgresql"
    return None if _owner() is not None or os.getuid() else "needs a user other than root: PostgreSQL rejects root"


def _owner() -> str | None:
    """The user that the server runs as, if this process is root's; None: the user of this process."""
    if os.getuid():
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return None


class Postgres:
    """A server on a port of the loopback, which keeps its port and its data over restarts."""

    def __init__(self) -> None:
        programs = find_server()
        assert programs is not None
        self.port = free_port()
        self._programs = programs
        # Not in a folder of the tests: its user could not enter that.
        self.folder = Path(tempfile.mkdtemp(prefix="momostream-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if (owner := _owner()) is not None:
            shutil.chown(self.folder, owner, owner)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        made = self._call("initdb", "-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile=password", "--no-sync")
        assert made.returncode == 0, made.stdout.decode()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(self._programs / program), *arguments]
        return subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **_as_owner())

    def url(self, **settings: str) -> str:
        """Of the database, with the password in a file."""
        settings = {"password_file": str(self.folder / "password"), **settings}
        asked = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres?{asked}"

    def connect(self) -> Any:
        """A connection to look around."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname="postgres", autocommit=True
        )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        with self.connect() as connection:
            return list(connection.execute(query, values).fetchall())

    @property
    def log(self) -> str:
        """Its output so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                # Processes of a server that was killed may still be there for a moment, and keep another from starting.
                self._start()
            with suppress(psycopg.OperationalError):
                self.connect().close()
                return
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL did not start: {self.log[-2000:]}")

    def _start(self) -> None:
        settings = (
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "max_connections=20",
            "recovery_init_sync_method=syncfs",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        command = [str(self._programs / "postgres"), "-D", "data", "-p", str(self.port), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_as_owner()
            )

    def kill(self) -> None:
        """SIGKILL: what is not on the disk is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again with what is on its disk."""
        self.kill()
        self.start()


def _as_owner() -> dict[str, Any]:
    owner = _owner()
    return {} if owner is None else {"user": owner, "group": pwd.getpwnam(owner).pw_gid, "extra_groups": []}
