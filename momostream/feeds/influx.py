"""Lines in InfluxDB, or whatever else takes its line protocol over HTTP."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from momostream.feeds.messages import Attempts, Trouble, send_in_slices
from momostream.feeds.posting import make_opener
from momostream.feeds.secrets import TLS, read_secret, tls_context
from momostream.feeds.source import FeedError

__all__ = ["InfluxOutlet", "is_influx"]

# `influx://` is HTTP, `influxs://` is HTTPS.
SCHEMES = {"influx": ("http", 8086), "influxs": ("https", 8086)}
MEASUREMENTS = {"outputs": "forecasts", "alarms": "alarms"}
OWN = ("measurement", "token_file", "token_env", "insecure")
LOCAL = ("localhost", "127.0.0.1", "::1")
#: The environment variable of the token, if no setting says where it is.
TOKEN = "MOMOSTREAM_INFLUX_TOKEN"
# Bytes of one request: InfluxDB's own limit is 50 MB, its advice 10,000 lines.
MOST_BYTES = 2 << 20
# Answers that pass: too many requests, and the server's own troubles.
PASSING = {408, 425, 429, 500, 502, 503, 504, 507}
# Answers about points: some are malformed, of another type than before or too old, or they are too many at once.
ABOUT_POINTS = {400, 413, 422}
# Characters of an answer that a message shows.
_SHOWN = 200
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def is_influx(target: str) -> bool:
    """Whether a path or URL is that of an InfluxDB.

    Examples
    --------
    >>> is_influx("influxs://db.plant/api/v2/write?org=plant&bucket=farm"), is_influx("plant.csv")
    (True, False)
    """
    scheme, mark, _ = target.partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


class InfluxOutlet:
    """Writes numbered texts to InfluxDB, by batches.

    A point is known by its measurement, its tags and its time, which must be a date: one that is sent again replaces
    itself, so that each is there once. Tags are the key, the target and, for forecasts, the step; the number of the
    line in its store is a field. Single points that the server does not accept are reported and left out.

    Parameters
    ----------
    url
        ``influx://host[:8086]/api/v2/write?org=plant&bucket=farm``, or ``influxs://`` for TLS: an address that takes
        line protocol by ``POST``, with its own parameters. Beside them, ``measurement`` is ``forecasts`` or ``alarms``
        by default; ``token_file`` or ``token_env`` says where the token is, else it is in
        ``MOMOSTREAM_INFLUX_TOKEN``; ``ca``, ``cert`` and ``key`` as in `momostream.feeds.mqtt.MqttFeed`. A token needs
        TLS, or a server on this machine, or ``insecure=true``.
    kind
        Of the texts: ``"outputs"`` or ``"alarms"``, a table of the store.
    patience
        Seconds to wait for an answer.
    on_trouble
        Called with one line, once for each loss of the server, and for points that it does not accept.

    Attributes
    ----------
    name : str
        The URL without settings.
    n_rejected : int
        Lines with points that the server did not accept.

    Raises
    ------
    FeedError
        From `send`: the server is there and does not accept anything: waiting does not help.
    """

    def __init__(self, url: str, kind: str, *, patience: float = 10.0, on_trouble: Trouble | None = None) -> None:
        parts = urlsplit(url)
        scheme, port = SCHEMES[parts.scheme.lower()]
        try:
            port = parts.port or port
        except ValueError:
            port = 0
        if not parts.hostname or not port or parts.username is not None:
            raise ValueError(
                "the URL of InfluxDB has the form influx[s]://host[:8086]/api/v2/write?org=ORG&bucket=BUCKET"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = f"{parts.scheme.lower()}://{host}:{port}{parts.path}"
        if kind not in MEASUREMENTS:
            raise ValueError(
                f"{self.name}: dead letters have no times, which InfluxDB needs: choose a file or a database"
            )
        settings = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._token, context = self._read_secrets(settings, scheme == "https")
        is_safe = scheme == "https" or parts.hostname in LOCAL or settings.get("insecure") == "true"
        if self._token is not None and not is_safe:
            raise ValueError(
                f"{self.name}: a token must not be sent without TLS: write influxs://, or add insecure=true"
            )
        self.kind, self.patience, self.n_rejected = kind, patience, 0
        self._measurement = settings.get("measurement") or MEASUREMENTS[kind]
        asked = {name: value for name, value in settings.items() if name not in {*OWN, *TLS, "precision"}}
        self._address = f"{scheme}://{host}:{port}{parts.path or '/'}?{urlencode({**asked, 'precision': 'us'})}"
        self._on_trouble, self._attempts = on_trouble, Attempts()
        # What the server said last about points.
        self._refused = ""
        self._opener = make_opener(context)

    def _read_secrets(self, settings: dict[str, str], encrypted: bool) -> tuple[str | None, Any]:
        try:
            token = read_secret(settings.get("token_env", TOKEN), settings.get("token_file"))
            if "token_env" in settings and token is None:
                raise ValueError(f"the environment variable {settings['token_env']}, which token_env names, is not set")
            if token is not None and not re.fullmatch(r"[!-~]+", token):
                raise ValueError("the token has characters that a header cannot hold")
            return token, tls_context(settings) if encrypted else None
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.name}: {error}") from None

    def send(self, lines: Iterable[tuple[int, str | int | None, str]]) -> int:
        """Write texts; return the last number up to which the server has all, else 0."""
        return send_in_slices(lines, self._send_slice)

    def last_number(self) -> None:
        """Return None: the server does not say what it has got."""

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _send_slice(self, lines: list[tuple[int, str | int | None, str]]) -> int:
        if not self._attempts.is_due():
            return 0
        n_sent = 0
        for batch in self._batches(lines):
            before, self._refused = self.n_rejected, ""
            if not self._write(batch):
                return n_sent
            if len(batch) == self.n_rejected - before:
                # Not some bad points, but a wrong bucket, or a table of other types.
                raise FeedError(f"{self.name}: the server does not accept points: {self._refused}")
            n_sent += len(batch)
        return n_sent

    def _batches(self, lines: list[tuple[int, str | int | None, str]]) -> Iterator[list[bytes]]:
        """Points of lines, as many at once as a request may hold."""
        batch: list[bytes] = []
        for number, _, text in lines:
            try:
                # Empty where there are no times yet.
                points = "".join(_points(self.kind, self._measurement, number, text)).encode()
            except ValueError as error:
                raise FeedError(f"{self.name}: {error}") from None
            if batch and sum(map(len, batch)) + len(points) > MOST_BYTES:
                yield batch
                batch = []
            batch.append(points)
        if batch:
            yield batch

    def _write(self, batch: list[bytes]) -> bool:
        """Write the points of some lines; whether the server has all of them that it accepts."""
        body = b"".join(batch)
        code, answer = self._post(body) if body else (204, "")
        if code in ABOUT_POINTS:
            if len(batch) > 1:
                # The bad one must not take the others along.
                half = len(batch) // 2
                return self._write(batch[:half]) and self._write(batch[half:])
            self.n_rejected += 1
            if not self._refused and self._on_trouble is not None:
                self._on_trouble(f"{self.name}: the server does not accept all points: {answer}")
            self._refused = answer
            return True
        if code == 0 or code in PASSING:
            what = "the disk of the server is full" if code == 507 else answer
            if self._attempts.note(succeeded=False) and self._on_trouble is not None:
                self._on_trouble(f"{self.name}: {what}; trying again")
            return False
        if not 200 <= code < 300:
            raise FeedError(f"{self.name}: the server does not accept points: {answer}")
        self._attempts.note(succeeded=True)
        return True

    def _post(self, body: bytes) -> tuple[int, str]:
        """The code of an answer, 0 for none, and what it says."""
        headers = {"content-type": "text/plain; charset=utf-8"}
        if self._token is not None:
            headers["authorization"] = f"Token {self._token}"
        request = urllib.request.Request(self._address, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self.patience) as answer:
                answer.read(1000)
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                said = self._shown(error.read(1000).decode(errors="replace"))
            return error.code, f"it answers with code {error.code}{said}"
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            return 0, f"the server cannot be reached: {getattr(reason, 'strerror', None) or reason}"

    def _shown(self, answer: str) -> str:
        """What a server says, on one line, without the token that it may repeat."""
        if self._token is not None:
            answer = answer.replace(self._token, "***")
        text = "".join(letter if letter.isprintable() else " " for letter in answer).strip()
        return f" ({text[:_SHOWN]})" if text else ""


# ---------------------------------------------------------------------- points of lines


def _points(kind: str, measurement: str, number: int, text: str) -> Iterator[str]:
    r"""The points of a line.

    >>> line = '{"turbine": "T 1", "row": 7, "time": "2024-03-01", "power": {"mean": 4.5, "lower": 4.0, "upper": null}}'
    >>> list(_points("outputs", "forecasts", 3, line))
    ['forecasts,key=T\\ 1,target=power mean=4.5,lower=4.0,number=3i,row=7i 1709251200000000\n']
    """
    record = json.loads(text)
    if kind == "alarms":
        values = {name: _number(record.get(name)) for name in ("value", "lower", "upper", "severity", "probability")}
        tags = {name: record.get(name) for name in ("key", "target", "alarm")}
        yield _point(measurement, tags, {**values, "number": number, "text": text}, record.get("time"))
        return
    row, steps = record.pop("row"), record.pop("steps", None)
    key = next((value for name, value in record.items() if name != "time" and not isinstance(value, dict)), None)
    for step, at in [(None, record)] if steps is None else enumerate(steps, 1):
        for target, sides in at.items():
            if isinstance(sides, dict):
                values = {name: _number(value) for name, value in sides.items()}
                tags = {"key": key, "step": step, "target": target}
                yield _point(measurement, tags, {**values, "number": number, "row": row}, at.get("time"))


def _number(value: Any) -> float | None:
    """A field of a fixed type: 4 is a number, and 4.0 the same one."""
    return None if value is None else float(value)


def _point(measurement: str, tags: dict[str, Any], fields: dict[str, Any], time: Any) -> str:
    if time is None:
        # The first forecasts of a model, which does not know the step of its rows yet.
        return ""
    if not isinstance(time, str):
        raise ValueError("times must be dates to be written to InfluxDB")
    named = "".join(f",{name}={_tag(value)}" for name, value in tags.items() if value not in (None, ""))
    texts = ((name, _field(value)) for name, value in fields.items())
    values = ",".join(f"{name}={text}" for name, text in texts if text is not None)
    return f"{_tag(measurement)}{named} {values} {_microseconds(time)}\n"


def _microseconds(time: str) -> int:
    date = datetime.fromisoformat(time)
    whole = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)) - _1970
    return (whole.days * 86400 + whole.seconds) * 1_000_000 + whole.microseconds


def _field(value: Any) -> str | None:
    if type(value) is int:
        return f"{value}i"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return '"' + value.encode(errors="replace").decode().replace("\\", "\\\\").replace('"', '\\"') + '"'
    return None


def _tag(value: Any) -> str:
    """A name or a tag: without newlines, which end a point whatever precedes them."""
    # A backslash of its own cannot be written before a separator.
    text = str(value).encode(errors="replace").decode().replace("\\", "/")
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return re.sub(r"([,= ])", r"\\\1", plain)
