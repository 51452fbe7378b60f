"""The file that `momostream serve` reads: feeds, their columns, alarms and stores, and how the page is served.

`read_config` checks every key against one table and names the line and the key that is wrong.
"""

from __future__ import annotations

import codecs
import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from momostream.distributions.limit_texts import read_limits
from momostream.feeds.extent import read_start
from momostream.feeds.postgres import is_postgres
from momostream.horizon.durations import parse_duration
from momostream.monitor.rates import Rate

__all__ = [
    "ConfigError",
    "Farm",
    "FeedConfig",
    "MailConfig",
    "ServeConfig",
    "WebhookConfig",
    "read_config",
    "read_config_text",
]

#: `source` of a feed whose rows are pushed to the HTTP interface.
PUSHED = "http"
# Names are part of addresses and of file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DAY_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_TABLES = ("serve", "feeds", "webhooks", "mails")
_TOML_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class ConfigError(ValueError):
    """A configuration file cannot be used; the message names the file, the line and the key."""


class _Rule(NamedTuple):
    """What a key accepts, in words and as a check."""

    words: str
    accepts: Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _reads(read: Callable[[str], Any], value: Any) -> bool:
    """Whether a text can be read."""
    try:
        return isinstance(value, str) and read(value) is not None
    except (ValueError, LookupError):
        return False


def _whole(least: int) -> _Rule:
    return _Rule(f"a whole number of at least {least}", lambda value: type(value) is int and value >= least)


def _number(least: float, most: float = float("inf"), words: str = "") -> _Rule:
    said = words or f"a number of at least {least:g}"
    return _Rule(said, lambda value: type(value) in {int, float} and least <= value <= most)


def _is_share(value: str) -> bool:
    part, mark, parts = value.partition("/")
    return bool(mark) and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)


def _are_limits(value: Any) -> bool:
    try:
        read_limits(value)
    except ValueError:
        return False
    return True


def _one_of(*choices: str) -> _Rule:
    return _Rule(f"one of {', '.join(map(repr, choices))}", lambda value: value in choices)


_TEXT = _Rule("a text", _text)
_FLAG = _Rule("true or false", lambda value: isinstance(value, bool))
_NAMES = _Rule(
    "a list of different names",
    lambda value: isinstance(value, list) and all(map(_text, value)) and len(set(value)) == len(value),
)
_LIMITS = _Rule('a list of limits such as "power=0:2050"', lambda value: _NAMES.accepts(value) and _are_limits(value))
_PROBABILITY = _Rule("a number between 0 and 1", lambda value: type(value) is float and 0.0 < value < 1.0)
_SPAN = _Rule(
    'a whole number of rows of at least 1, or a span such as "6h"',
    lambda value: _reads(parse_duration, value) if isinstance(value, str) else type(value) is int and value >= 1,
)
_KEEP = _Rule('a span such as "30d"', lambda value: _reads(parse_duration, value))
_START = _Rule('a text with a date, such as "2024-03-01", or with a number', lambda value: _reads(read_start, value))
_RATE = _Rule("a rate such as '1 per week' or '1 per 5000 rows'", lambda value: _reads(Rate.read, value))
_SHARE = _Rule('a part of the keys such as "1/2"', lambda value: _text(value) and _is_share(value))
_TABLE = _Rule("a table", lambda value: isinstance(value, dict))


@dataclass(frozen=True)
class ServeConfig:
    """How page and interface are served.

    Parameters
    ----------
    address
        ``HOST:PORT``; port 0 takes any that is free.
    title
        Of the page.
    read_token_file, write_token_file
        Files whose first line is the token for reading, and for reading and writing. The environment variables
        ``MOMOSTREAM_READ_TOKEN`` and ``MOMOSTREAM_WRITE_TOKEN`` have the same meaning and are looked at first.
    certificate, private_key
        PEM files to serve by HTTPS: the certificate with those of the authorities between, and its key, which may be in
        the same file and must not be encrypted.
    insecure
        Serve on an address other than loopback without tokens.
    hosts
        Further names under which the page may be asked for, such as that of a proxy.
    history
        Rows of each machine that the page shows.
    max_body_mb, max_rows
        Limits of one request.
    rate
        Requests per second of one client, on average; short bursts of ten times as many are accepted.
    max_backlog_mb
        Rows that were accepted and not yet learnt, of each feed. Beyond that, clients are asked to wait.
    timeout
        Seconds that a request may take to arrive.
    reports, report_at
        Folder for a report of each feed every day, and the local time ``HH:MM`` at which it is written.
    """

    address: str = "127.0.0.1:8080"
    title: str = "momostream"
    read_token_file: str | None = None
    write_token_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    history: int = 600
    max_body_mb: float = 8.0
    max_rows: int = 20_000
    rate: float = 200.0
    max_backlog_mb: float = 256.0
    timeout: float = 30.0
    reports: str | None = None
    report_at: str = "06:00"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host and port of the address."""
        return split_address(self.address)


@dataclass(frozen=True)
class FeedConfig:
    """One feed; all but ``source``, ``units`` and ``title`` are options of ``momostream run`` under the same names.

    Parameters
    ----------
    name
        Of the feed, in addresses.
    source
        ``"http"``: rows are pushed to the interface; else as the argument of ``momostream run``.
    units
        By column, for the page.
    model
        Parameters of the model, as with ``--set``.
    """

    name: str
    source: str = PUSHED
    title: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None
    targets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    key: str | None = None
    time: str = "auto"
    horizon: int | str | None = None
    level: float = 0.9
    every: int | str = 1
    sequence: str | None = None
    output: str | None = None
    format: str | None = None
    alarms: str = "store"
    alarm_level: float = 0.999
    false_alarms: str | None = None
    alarm: tuple[str, ...] = ()
    alarm_probability: float = 0.5
    dead_letters: str | None = None
    bad_rows: str | None = None
    follow: bool = True
    limit: int | None = None
    overwrite: bool = False
    start: str | None = None
    last: int | str | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."
    time_format: str | None = None
    commit_every: int | None = None
    commit_seconds: float = 10.0
    keep: str | None = None
    memory: int = 1024
    share: str | None = None
    warm_start: bool = False
    seed: int | None = None
    bounds: tuple[str, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_pushed(self) -> bool:
        """Whether rows come through the HTTP interface."""
        return self.source == PUSHED


@dataclass(frozen=True)
class WebhookConfig:
    """An address that gets alarms.

    Parameters
    ----------
    url
        Gets each alarm as a JSON object by ``POST``.
    secret_file
        File whose first line signs what is sent; the environment variable ``MOMOSTREAM_WEBHOOK_SECRET`` is looked at
        first.
    timeout
        Seconds to wait for an answer.
    """

    url: str
    secret_file: str | None = None
    timeout: float = 10.0


@dataclass(frozen=True)
class MailConfig:
    """People who get alarms by mail.

    Parameters
    ----------
    server
        ``HOST:PORT`` of a mail server.
    sender, to
        Mail addresses.
    encryption
        ``"starttls"``, ``"tls"`` from the first byte, or ``"none"``.
    user, password_file
        Login: the first line of the file is the password; the environment variable ``MOMOSTREAM_MAIL_PASSWORD`` is
        looked at first.
    ca
        Certificates of authorities, in place of those of the system.
    pause
        Seconds between two mails; alarms of the meantime come together.
    timeout
        Seconds to wait for an answer.
    """

    server: str
    sender: str
    to: tuple[str, ...]
    encryption: str = "starttls"
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None
    pause: float = 60.0
    timeout: float = 10.0


@dataclass(frozen=True)
class Farm:
    """The contents of a configuration file."""

    serve: ServeConfig
    feeds: tuple[FeedConfig, ...]
    webhooks: tuple[WebhookConfig, ...] = ()
    mails: tuple[MailConfig, ...] = ()
    folder: Path = Path()
    text: str = ""
    name: str = "farm.toml"

    def error(self, path: tuple[str, ...], what: str) -> ConfigError:
        """An error that names the line and the key."""
        return _Reader(self.text, self.name).error(path, what)

    def path(self, name: str) -> Path:
        """A path of the file: relative ones begin at its folder."""
        return self.folder / name


_SERVE_RULES = {
    "address": _Rule("HOST:PORT", lambda value: _text(value) and _is_address(value)),
    "title": _TEXT, "read_token_file": _TEXT, "write_token_file": _TEXT, "insecure": _FLAG, "hosts": _NAMES,
    "certificate": _TEXT, "private_key": _TEXT,
    "history": _whole(10), "max_body_mb": _number(0.001), "max_rows": _whole(1), "rate": _number(0.1),
    "max_backlog_mb": _number(0.001), "timeout": _number(0.1), "reports": _TEXT,
    "report_at": _Rule('a time of day such as "06:00"', lambda v: _text(v) and bool(_DAY_TIME.fullmatch(v))),
}  # fmt: skip
_FEED_RULES = {
    "source": _TEXT, "title": _TEXT, "store": _TEXT, "targets": _NAMES, "inputs": _NAMES, "key": _TEXT, "time": _TEXT,
    "units": _Rule("a table of texts", lambda value: isinstance(value, dict) and all(map(_text, value.values()))),
    "horizon": _SPAN, "level": _PROBABILITY, "every": _SPAN, "start": _START, "last": _SPAN,
    "sequence": _TEXT, "output": _TEXT,
    "format": _one_of("csv", "jsonl"), "alarms": _TEXT, "alarm_level": _PROBABILITY,
    "false_alarms": _RATE, "alarm": _NAMES, "alarm_probability": _PROBABILITY, "dead_letters": _TEXT,
    "overwrite": _FLAG, "bad_rows": _one_of("stop", "skip"), "follow": _FLAG, "limit": _whole(1),
    "encoding": _Rule('an encoding such as "utf-8"', lambda value: _reads(codecs.lookup, value)),
    "delimiter": _Rule("one character", lambda value: isinstance(value, str) and len(value) == 1),
    "decimal": _one_of(".", ","), "time_format": _TEXT, "commit_every": _whole(1), "commit_seconds": _number(0.0),
    "keep": _KEEP, "memory": _whole(0), "share": _SHARE, "warm_start": _FLAG, "seed": _whole(0),
    "bounds": _LIMITS, "model": _TABLE,
}  # fmt: skip
_WEBHOOK_RULES = {
    "url": _Rule("an address with http:// or https://", lambda v: _text(v) and bool(re.match("https?://", v))),
    "secret_file": _TEXT,
    "timeout": _number(0.1),
}  # fmt: skip
_MAIL_ADDRESS = _Rule("a mail address", lambda v: _text(v) and bool(re.fullmatch(r"[^@\s<>,]+@[^@\s<>,]+", v)))
_MAIL_RULES = {
    "server": _SERVE_RULES["address"], "sender": _MAIL_ADDRESS,
    "to": _Rule("a list of mail addresses", lambda v: type(v) is list and v != [] and all(map(_MAIL_ADDRESS[1], v))),
    "encryption": _one_of("starttls", "tls", "none"), "user": _TEXT, "password_file": _TEXT, "ca": _TEXT,
    "pause": _number(0.1), "timeout": _number(0.1),
}  # fmt: skip


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``.

    Examples
    --------
    >>> split_address("127.0.0.1:8080"), split_address("[::1]:80"), split_address(":8080")
    (('127.0.0.1', 8080), ('::1', 80), ('127.0.0.1', 8080))
    """
    host, mark, port = address.rpartition(":")
    if not mark or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address: expected HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_address(value: str) -> bool:
    try:
        split_address(value)
    except ValueError:
        return False
    return True


def read_config(path: Path) -> Farm:
    """Read a configuration file.

    Raises
    ------
    ConfigError
        With the file, the line and the key that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8: byte {error.start + 1} is invalid") from None
    return read_config_text(text, str(path), path.parent)


def read_config_text(text: str, name: str = "farm.toml", folder: Path = Path()) -> Farm:
    r"""Read the text of a configuration file; ``name`` is for messages.

    Examples
    --------
    >>> farm = read_config_text('[feeds.north]\ntargets = ["power"]\nhorizon = 12')
    >>> farm.feeds[0].name, farm.feeds[0].horizon, farm.serve.address
    ('north', 12, '127.0.0.1:8080')
    >>> read_config_text('[feeds.north]\ntarget = "power"')
    Traceback (most recent call last):
    momostream.serve.config.ConfigError: farm.toml, line 2: unknown key feeds.north.target: did you mean 'targets'?
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _TOML_LINE.search(str(error))
        line = f", line {where[1]}" if where else ""
        raise ConfigError(f"{name}{line}: {_TOML_LINE.sub('', str(error))}") from None
    return _Reader(text, name).farm(found, folder)


class _Reader:
    """Checks what a file holds, and finds the line of what is wrong."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.lines, self.name = text, text.splitlines(), name

    def farm(self, found: dict[str, Any], folder: Path) -> Farm:
        for key in found:
            if key not in _TABLES:
                raise self._unknown((), key, list(_TABLES))
        serve = self._table(("serve",), found.get("serve", {}), _SERVE_RULES)
        feeds = self._need_table(("feeds",), found.get("feeds", {}))
        webhooks, mails = (self._tables(found, name) for name in ("webhooks", "mails"))
        if not feeds:
            raise ConfigError(f"{self.name}: there is no feed: begin one with [feeds.NAME]")
        checked = tuple(self._feed(feed, values) for feed, values in feeds.items())
        for feed in checked if webhooks or mails else ():
            if feed.alarms != "store" and not is_postgres(feed.alarms):
                what = "webhooks and mails take alarms from the store: leave them there, or in a postgresql:// database"
                raise self.error(("feeds", feed.name, "alarms"), what)
        return Farm(
            ServeConfig(**_tuples(serve)),
            checked,
            tuple(self._webhook(values) for values in webhooks),
            tuple(self._mail(values) for values in mails),
            folder,
            self.text,
            self.name,
        )

    def _feed(self, name: str, values: Any) -> FeedConfig:
        path = ("feeds", name)
        if not _NAME.fullmatch(name):
            raise self.error(path, "a name of a feed has letters, digits, - and _, at most 64")
        checked = self._table(path, values, _FEED_RULES)
        if not checked.get("targets") and checked.get("horizon") is None:
            raise self.error(path, "nothing to predict: name targets, or a horizon to forecast all columns")
        if checked.get("source", PUSHED) == PUSHED and not checked.get("targets"):
            raise self.error(path, "rows that are pushed have no header: name the targets")
        if "share" in checked and "key" not in checked:
            raise self.error((*path, "share"), "divides the keys: name the key as well")
        for bound in ("start", "last"):
            if bound in checked and checked.get("source", PUSHED) == PUSHED:
                raise self.error((*path, bound), "rows that are pushed are all taken")
        for role in ("targets", "inputs"):
            if checked.get("key") in checked.get(role, []):
                raise self.error((*path, "key"), f"column {checked['key']!r} is one of the {role} as well")
        return FeedConfig(name, **_tuples(checked))

    def _webhook(self, values: dict[str, Any]) -> WebhookConfig:
        checked = self._table(("webhooks",), values, _WEBHOOK_RULES)
        if "url" not in checked:
            raise self.error(("webhooks",), "url is missing")
        return WebhookConfig(**checked)

    def _tables(self, found: dict[str, Any], name: str) -> list[dict[str, Any]]:
        tables = found.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise self.error((name,), f"expected tables written as [[{name}]]")
        return tables

    def _mail(self, values: dict[str, Any]) -> MailConfig:
        checked = self._table(("mails",), values, _MAIL_RULES)
        for name in ("server", "sender", "to"):
            if name not in checked:
                raise self.error(("mails",), f"{name} is missing")
        if checked.get("encryption") == "none" and "user" in checked:
            raise self.error(("mails", "user"), "a password must not be sent without TLS: choose another encryption")
        return MailConfig(**_tuples(checked))

    def _need_table(self, path: tuple[str, ...], values: Any) -> dict[str, Any]:
        if not isinstance(values, dict):
            raise self.error(path, "expected a table")
        return values

    def _table(self, path: tuple[str, ...], values: Any, rules: Mapping[str, _Rule]) -> dict[str, Any]:
        for key, value in self._need_table(path, values).items():
            if key not in rules:
                raise self._unknown(path, key, list(rules))
            if not rules[key].accepts(value):
                raise self.error((*path, key), f"expected {rules[key].words}, got {_short(value)}")
        return dict(values)

    def _unknown(self, path: tuple[str, ...], key: str, known: list[str]) -> ConfigError:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
        return ConfigError(f"{self._at((*path, key))}unknown key {'.'.join((*path, key))}: {hint}")

    def error(self, path: tuple[str, ...], what: str) -> ConfigError:
        return ConfigError(f"{self._at(path)}{'.'.join(path)}: {what}")

    def _at(self, path: tuple[str, ...]) -> str:
        line = line_of(self.lines, path)
        return f"{self.name}: " if line is None else f"{self.name}, line {line}: "


def line_of(lines: list[str], path: tuple[str, ...]) -> int | None:
    """The line in which a key of a TOML file is written, or its table; None if it cannot be found.

    Examples
    --------
    >>> line_of(["[feeds.a]", "x = 1", "[feeds.b]", "x = 2"], ("feeds", "b", "x"))
    4
    """
    table: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[\[?([^\]]+)\]\]?", line):
            table = _parts(header[1])
            if table == path:
                return number
        elif (pair := re.match(r"""\s*((?:[\w."' -]|\\.)+?)\s*=""", line)) and (*table, *_parts(pair[1])) == path:
            return number
    # A key inside an inline table: the line of that table.
    return line_of(lines, path[:-1]) if len(path) > 1 else None


def _parts(dotted: str) -> tuple[str, ...]:
    found = re.findall(r""""([^"]*)"|'([^']*)'|([^.\s"']+)""", dotted)
    return tuple(next(filter(None, parts), "") for parts in found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Lists as tuples: a configuration does not change."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


assert {field.name for field in fields(FeedConfig)} == {"name", *_FEED_RULES}
