"""Lines in PostgreSQL or TimescaleDB, through psycopg, which is imported when an outlet is opened.

Lines of a store are numbered without gaps. A table of the database holds the last number that came from each store, and
is changed in the transaction that adds the rows: whatever is killed, each line is there exactly once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from momostream.feeds.messages import Attempts, Trouble, send_in_slices
from momostream.feeds.secrets import LOGIN, TLS, check_tls_files, read_login
from momostream.feeds.source import FeedError

__all__ = ["PostgresOutlet", "is_postgres"]

SCHEMES = ("postgresql", "postgres")
PORT = 5432
LOCAL = ("localhost", "127.0.0.1", "::1")
# The table of the last numbers.
POSITIONS = "momostream_positions"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_BEGIN = "store text NOT NULL, number bigint NOT NULL, key text, row bigint, "
_TIMES = "time timestamptz, time_number double precision, "
_NUMBERS = "{} double precision, {} double precision, {} double precision"


def is_postgres(target: str) -> bool:
    """Whether a path or URL is that of a database.

    Examples
    --------
    >>> is_postgres("postgresql://localhost/plant"), is_postgres("plant.csv")
    (True, False)
    """
    scheme, mark, _ = target.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


class _Table(NamedTuple):
    """A table of one kind of lines: its name, unless another one is set, and its columns."""

    name: str
    columns: str

    @property
    def names(self) -> str:
        return ", ".join(column.split()[0] for column in self.columns.split(", "))


TABLES = {
    "outputs": _Table(
        "forecasts",
        f"{_BEGIN}step integer, {_TIMES}target text NOT NULL, {_NUMBERS.format('mean', 'lower', 'upper')}",
    ),
    "alarms": _Table(
        "alarms", f"{_BEGIN}{_TIMES}target text, {_NUMBERS.format('value', 'lower', 'upper')}, alarm jsonb"
    ),
    "dead": _Table("dead_letters", f"{_BEGIN}source text, reason text, letter jsonb"),
}
# Reasons of a server to reject a client that do not pass.
_REJECTIONS = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|not permitted|certificate|no password supplied"
)
# Classes of errors that pass: connections, resources, the server's own troubles, conflicts of transactions.
_PASSING = ("08", "40", "53", "55", "57", "58", "XX")


class PostgresOutlet:
    """Adds numbered texts to a table of PostgreSQL, each of them once.

    Parameters
    ----------
    url
        ``postgresql://[user@]host[:5432]/database``. Settings follow, as ``?table=forecasts&password_file=db.secret``:
        ``table`` is ``forecasts``, ``alarms`` or ``dead_letters`` by default, and made if it does not exist; user,
        password and certificates as in `momostream.feeds.mqtt.MqttFeed`, else the password is in
        ``MOMOSTREAM_POSTGRES_PASSWORD``. Servers other than this machine need TLS with a certificate that is checked,
        unless ``sslmode`` is set.
    kind
        Of the texts: ``"outputs"``, ``"alarms"`` or ``"dead"``, a table of the store.
    store
        Identity of the store that numbers them.
    patience
        Seconds to wait for an answer.
    on_trouble
        Called with one line, once for each loss of the server.

    Attributes
    ----------
    name : str
        The URL without user, password and settings.
    """

    def __init__(
        self, url: str, kind: str, store: str, *, patience: float = 10.0, on_trouble: Trouble | None = None
    ) -> None:
        self._psycopg = _import_psycopg()
        self.name, self._options, table = _read_url(url, max(1, int(patience)))
        self.kind, self.store = kind, store
        self._table = TABLES[kind]._replace(name=table or TABLES[kind].name)
        self._on_trouble = on_trouble
        self._attempts = Attempts()
        self._connection: Any = None
        # At once: a wrong password shall not show when the first alarm comes.
        self._connect()

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Add the rows of texts that are not there yet.

        Returns
        -------
        int
            The last number up to which the database has all; 0 where it has none of these. All others are to be sent
            again.

        Raises
        ------
        FeedError
            The server is there and does not accept them: waiting does not help.
        """
        return send_in_slices(lines, self._send_slice)

    def last_number(self) -> int | None:
        """The last number that the database has got; None while it cannot be asked."""
        if self._connection is None and not (self._attempts.is_due() and self._connect()):
            return None
        try:
            query = f"SELECT number FROM {self._positions} WHERE store = %s AND kind = %s"
            found = self._connection.execute(query, [self.store, self.kind]).fetchone()
        except self._psycopg.Error as error:
            self._handle(error)
            return None
        return 0 if found is None else int(found[0])

    def close(self) -> None:
        """Leave the server."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _send_slice(self, lines: list[tuple[int, str | int | None, str]]) -> int:
        if self._connection is None and not (self._attempts.is_due() and self._connect()):
            return 0
        try:
            with self._connection.transaction():
                self._add(lines)
        except self._psycopg.Error as error:
            self._handle(error)
            return 0
        self._attempts.note(succeeded=True)
        return len(lines)

    def _add(self, lines: list[tuple[int, str | int | None, str]]) -> None:
        execute, mine = self._connection.execute, [self.store, self.kind]
        execute(f"INSERT INTO {self._positions} VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", mine)
        # Nobody else adds lines of this store until the transaction ends.
        query = f"SELECT number FROM {self._positions} WHERE store = %s AND kind = %s FOR UPDATE"
        (sent,) = execute(query, mine).fetchone()
        new = [line for line in lines if line[0] > sent]
        if not new:
            return
        statement = f"COPY {self._table.name} ({self._table.names}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for number, _, text in new:
                for row in _ROWS[self.kind](text):
                    copy.write_row((self.store, number, *row))
        execute(f"UPDATE {self._positions} SET number = %s WHERE store = %s AND kind = %s", [new[-1][0], *mine])

    @property
    def _positions(self) -> str:
        schema = self._table.name.rpartition(".")[0]
        return f"{schema}.{POSITIONS}" if schema else POSITIONS

    def _connect(self) -> bool:
        try:
            self._connection = self._psycopg.connect(**self._options, autocommit=True)
            with self._connection.transaction():
                self._make_table(self._positions, "store text, kind text, number bigint, PRIMARY KEY (store, kind)")
                self._make_table(self._table.name, self._table.columns)
        except self._psycopg.Error as error:
            self._handle(error)
            return False
        return True

    def _make_table(self, name: str, columns: str) -> None:
        # Not `IF NOT EXISTS`: that needs the right to make tables even where there is nothing to make.
        execute = self._connection.execute
        # Two runs that begin together must not both make it.
        execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [POSITIONS])
        if execute("SELECT to_regclass(%s)", [name]).fetchone()[0] is None:
            execute(f"CREATE TABLE {name} ({columns})")

    def _handle(self, error: Any) -> None:
        """Wait for the next attempt, or give up where that does not help."""
        state, said = error.sqlstate, _first_line(error)
        was_connected = self._connection is not None
        self.close()
        rejected = not was_connected and state is None and "FATAL" in said and _REJECTIONS.search(said)
        if rejected or (state is not None and not state.startswith(_PASSING)):
            raise FeedError(f"{self.name}: the database does not accept this: {said}") from None
        if self._attempts.note(succeeded=False) and self._on_trouble is not None:
            what = "the disk of the database is full" if state == "53100" else f"the database cannot be reached: {said}"
            self._on_trouble(f"{self.name}: {what}; trying again")


# ---------------------------------------------------------------------- rows of lines


def _prediction_rows(text: str) -> Iterator[tuple[Any, ...]]:
    """A row for each step and target of a prediction.

    >>> list(_prediction_rows('{"turbine": "T01", "row": 7, "time": 5, "power": {"mean": 4, "lower": 3, "upper": 5}}'))
    [('T01', 7, None, None, 5, 'power', 4, 3, 5)]
    """
    record = json.loads(text)
    row = record.pop("row")
    steps = record.pop("steps", None)
    key = next((value for name, value in record.items() if name != "time" and not isinstance(value, dict)), None)
    for step, at in [(None, record)] if steps is None else enumerate(steps, 1):
        for target, values in at.items():
            if isinstance(values, dict):
                sides = (values["mean"], values["lower"], values["upper"])
                yield _text(key), row, step, *_times(at.get("time")), _text(target), *sides


def _alarm_rows(text: str) -> Iterator[tuple[Any, ...]]:
    record = _clean(json.loads(text))
    target = record.get("target")
    numbers = (_number(record.get(name)) for name in ("value", "lower", "upper"))
    yield _text(record.get("key")), record["row"], *_times(record.get("time")), target, *numbers, json.dumps(record)


def _letter_rows(text: str) -> Iterator[tuple[Any, ...]]:
    record = _clean(json.loads(text))
    yield _text(record.get("key")), None, record.get("source"), record.get("reason"), json.dumps(record)


_ROWS = {"outputs": _prediction_rows, "alarms": _alarm_rows, "dead": _letter_rows}


def _times(time: Any) -> tuple[str | None, float | None]:
    """A date, in UTC where it has no zone, or a number."""
    return (time, None) if isinstance(time, str) else (None, time)


def _number(value: Any) -> float | None:
    return value if type(value) in {int, float} else None


def _text(value: Any) -> str | None:
    return None if value is None else _clean(str(value))


def _clean(value: Any) -> Any:
    """Texts without characters that PostgreSQL cannot hold."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------- addresses


def _read_url(url: str, seconds: int) -> tuple[str, dict[str, Any], str | None]:
    """Name without secrets, options of the connection, and the table that is set."""
    parts = urlsplit(url)
    form = "postgresql://[user@]host[:5432]/database"
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path[1:])
    try:
        host, port = parts.hostname or "", parts.port or PORT
    except ValueError:
        host = ""
    # Nothing of the URL in the message: it may hold a password.
    if parts.scheme.lower() not in SCHEMES or not host or not database or "/" in database:
        raise ValueError(f"the URL of a database has the form {form}")
    name = f"postgresql://{host}:{port}/{database}"
    known = ("table", "sslmode", *LOGIN, *TLS)
    if unknown := settings.keys() - set(known):
        raise ValueError(f"{name}: unknown setting {', '.join(sorted(unknown))}; there is {', '.join(known)}")
    table = settings.get("table")
    if table is not None and not all(map(_IDENTIFIER.fullmatch, table.split(".", 1))):
        raise ValueError(f"{name}: table={table[:70]!r} is not the name of a table: use letters, digits and _")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    try:
        login = read_login(settings, user, password, "MOMOSTREAM_POSTGRES_PASSWORD")
        check_tls_files(settings)
    except (ValueError, OSError) as error:
        raise ValueError(f"{name}: {error}") from None
    options: dict[str, Any] = {
        "host": host, "port": port, "dbname": database, "user": login.user, "password": login.password,
        "connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds,
        "options": f"-c timezone=UTC -c statement_timeout={6 * seconds}s", "application_name": "momostream",
        "sslcert": settings.get("cert"), "sslkey": settings.get("key"),
    }  # fmt: skip
    if host not in LOCAL or "ca" in settings or "sslmode" in settings:
        options["sslmode"] = settings.get("sslmode", "verify-full")
        options["sslrootcert"] = settings.get("ca") or ("system" if "sslmode" not in settings else None)
    return name, {key: value for key, value in options.items() if value is not None}, table


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The last line is that of the last address that was tried.
    said = lines[-1] if lines and lines[0].startswith("Multiple") else "".join(lines[:1])
    return said.removeprefix("connection failed: ") or type(error).__name__


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ValueError("PostgreSQL needs psycopg: pip install 'momostream[postgres]'") from None
    return psycopg
