"""Rows from OPC UA subscriptions, through asyncua, which is imported when a feed is opened.

A server sends changes of values while a client is there, and keeps nothing for one that is away. After a loss of the
connection, and when a run resumes, what has happened meanwhile is read from the history of the nodes, if the server
keeps one; if not, the gap is reported.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from momostream.feeds.formats import BadRow, Json, Rejected, Row, shown
from momostream.feeds.gather import Gather
from momostream.feeds.messages import FIRST_DELAY, LONGEST_DELAY, PAUSE, Trouble
from momostream.feeds.secrets import LOGIN, check_tls_files, read_login
from momostream.feeds.source import FeedError
from momostream.feeds.topics import COLUMN, TopicPattern
from momostream.horizon.durations import SECOND, parse_duration

__all__ = ["OpcUaFeed", "is_opcua"]

PORT = 4840
LOCAL = ("localhost", "127.0.0.1", "::1")
SETTINGS = ("nodes", "tick", "wait", "hold", "interval", "policy", "mode", "cert", "key", "server_cert", "insecure")
# Values that a server keeps of each node between two publications, and values that wait to be taken.
NODE_QUEUE, MOST_WAITING = 100, 100_000
# Seconds between two looks for new machines.
LOOK = 60.0
# History is read in parts of this length.
HISTORY_SPAN = timedelta(hours=1)
# Clocks of servers may differ by this.
CLOCKS = timedelta(days=1)
# Codes of a server that do not pass: wrong user, password or certificate.
REJECTIONS = ("BadUserAccessDenied", "BadIdentityToken", "BadCertificate", "BadSecurity")


def is_opcua(target: str) -> bool:
    """Whether a path or URL is that of an OPC UA server.

    Examples
    --------
    >>> is_opcua("opc.tcp://plc:4840/?nodes=Plant/{turbine}/{column}"), is_opcua("rows.csv")
    (True, False)
    """
    return target.lower().startswith("opc.tcp://")


class _Value(NamedTuple):
    """A value of a node; ``since`` is set for the first one after a subscription, which may be old."""

    key: str | None
    column: str
    time: datetime
    value: Any
    now: datetime | None = None


class OpcUaFeed:
    """Rows of nodes of an OPC UA server.

    Parameters
    ----------
    url
        ``opc.tcp://[user@]host[:4840]/path?nodes=Plant/{turbine}/{column}``: ``nodes`` is a path of browse names below
        the folder Objects, in which ``{turbine}`` gives rows the field `turbine`, and ``{column}`` is the column; ``+``
        is any name. Further settings: ``tick`` (``10s``), ``wait`` (``2s``) and ``hold`` (``1d``) as in
        `momostream.feeds.gather.Gather`; ``interval`` (``1s``) between two publications of the server; ``policy``, such
        as ``Basic256Sha256``, with ``mode``, ``cert``, ``key`` and ``server_cert``, the certificate that the server
        must have; ``password_file`` or ``password_env``, else the password is in ``MOMOSTREAM_OPCUA_PASSWORD``.
    columns
        Columns of numbers. Values whose status is bad are missing.
    key
        Name in ``nodes`` that is the key; None where there is none.
    patience
        Seconds to wait for a server that cannot be reached at the start. Later there is no limit.
    on_trouble
        Called with one line: the server cannot be reached, values may be missing.

    Attributes
    ----------
    name : str
        Server and nodes.
    n_gaps : int
        Times that values may be missing, because the server keeps no history.

    Raises
    ------
    FeedError
        The server cannot be reached in time, rejects this client, or has no such nodes.
    """

    # Values that were not committed come again only if the server keeps a history.
    is_replayable, is_live = False, True

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        *,
        key: str | None = None,
        patience: float = 30.0,
        on_trouble: Trouble | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a sequence of names, not the string {columns!r}")
        self._asyncua = _import_asyncua()
        self._read_url(url, key)
        self.readings, self.time, self.key = tuple(columns), "time", key
        settings = self._settings
        try:
            spans = settings.get("tick", "10s"), settings.get("wait", "2s"), settings.get("hold", "1d")
            self._gather = Gather(columns, *spans)
            self._interval = parse_duration(settings.get("interval", "1s")) / SECOND
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        self.n_gaps = self.n_repeated = 0
        self._number = 0
        self._patience, self._on_trouble = patience, on_trouble
        # Written by the thread of the client.
        self._arrived: queue.Queue[_Value | str | FeedError] = queue.Queue(MOST_WAITING)
        self._is_ready, self._begins, self._is_closed = threading.Event(), threading.Event(), threading.Event()
        self._failure: FeedError | None = None
        # Nodes to read, by their identity; and times of the last values, for gaps.
        self._nodes: dict[str, tuple[Any, str | None, str]] = {}
        self._last: dict[tuple[str | None, str], datetime] = {}
        self._has_reported = False
        self._thread = threading.Thread(target=self._work, name=f"OPC UA {self.name}", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self.close()
            raise self._failure

    def _read_url(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        settings = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            host, port = parts.hostname or "", parts.port or PORT
        except ValueError:
            host = ""
        # Nothing of the URL in the message: it may hold a password.
        if not is_opcua(url) or not host or "nodes" not in settings:
            form = "opc.tcp://[user@]host[:4840]/path?nodes=Plant/{machine}/{column}"
            raise ValueError(f"the URL of an OPC UA server has the form {form}")
        self.name = f"opc.tcp://{host}:{port}/{settings['nodes']}"
        known = {*SETTINGS, *LOGIN}
        if unknown := settings.keys() - known:
            names = ", ".join((*SETTINGS, *LOGIN))
            raise ValueError(f"{self.name}: unknown setting {', '.join(sorted(unknown))}; there is {names}")
        self._pattern = TopicPattern(settings["nodes"].strip("/"))
        if not self._pattern.has_column or "#" in self._pattern.filter:
            raise ValueError(f"{self.name}: nodes must be a path with {{column}}, without #")
        if key is not None and key not in self._pattern.names:
            raise ValueError(f"{self.name}: the key {key!r} is not in nodes: write {{{key}}} where its level is")
        user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
        try:
            self._login = read_login(settings, user, password, "MOMOSTREAM_OPCUA_PASSWORD")
            check_tls_files(settings)
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.name}: {error}") from None
        if "policy" in settings and not {"cert", "key"} <= settings.keys():
            raise ValueError(f"{self.name}: policy needs cert and key, the certificate of this client and its key")
        is_safe = "policy" in settings or host in LOCAL or settings.get("insecure") == "true"
        if self._login.password is not None and not is_safe:
            raise ValueError(f"{self.name}: a password must not be sent in the clear: set policy, or insecure=true")
        self._settings, self._url = settings, f"opc.tcp://{host}:{port}{parts.path}"

    # ------------------------------------------------------------------ the feed

    def events(self) -> Iterator[Row | Rejected | None]:
        """Rows in order, values that cannot be read, and None whenever there was neither for a while."""
        self._begins.set()
        yielded = clock.monotonic()
        while not self._is_closed.is_set():
            try:
                item = self._arrived.get(timeout=PAUSE)
            except queue.Empty:
                item = None
            if isinstance(item, FeedError):
                raise item
            if isinstance(item, str):
                self._report(item)
            elif item is not None and (rejected := self._take(item)) is not None:
                yield rejected
            if item is None or clock.monotonic() - yielded >= PAUSE:
                yielded = clock.monotonic()
                yield None
            yield from self._gathered()

    def _take(self, item: _Value) -> Rejected | None:
        try:
            value = Json().number(item.value)
            if item.now is not None:
                self._gather.seed(item.key, item.column, item.time, value, item.now)
            else:
                self.n_repeated += not self._gather.add(item.key, item.column, item.time, value)
        except BadRow as bad:
            self._number += 1
            text = f"{item.time.isoformat()} {shown(item.value)}"
            return Rejected(self._number, self._number, item.key, f"column {shown(item.column)}: {bad}", text)
        return None

    def _gathered(self) -> Iterator[Row]:
        while (row := self._gather.pop()) is not None:
            self._number += 1
            yield Row(self._number, self._number, row.time, row.values, row.key)

    @property
    def position(self) -> dict[str, Any]:
        """Rows so far, values that wait for their row, and the time of the last value of each column."""
        return {"number": self._number, "n_gaps": self.n_gaps, "gathered": self._gather.state}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading; values since then are read from the server's history."""
        self._number, self.n_gaps = position["number"], position["n_gaps"]
        self._gather.restore(position["gathered"])
        for _, key, column in self._nodes.values():
            if (last := self._gather.last_time(key, column)) is not None:
                self._last[key, column] = last

    def acknowledge(self) -> None:
        """Do nothing: a server does not wait for it."""

    def unfinished(self, event: Row | Rejected) -> None:
        """Return None: values come as a whole."""

    def close(self) -> None:
        """Leave the server; `events` ends."""
        self._is_closed.set()
        self._begins.set()
        self._thread.join(10.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _report(self, what: str) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {what}")

    # ------------------------------------------------------------------ the client, in a thread of its own

    def _work(self) -> None:
        try:
            asyncio.run(self._stay_connected())
        except Exception as error:
            # Whatever it is, the reader of the feed must hear of it.
            failure = error if isinstance(error, FeedError) else FeedError(f"{self.name}: {_reason(error)}")
            self._failure = failure
            self._put(failure)
        finally:
            self._is_ready.set()

    async def _stay_connected(self) -> None:
        """One session after the other, with longer and longer pauses between attempts."""
        deadline, delay = clock.monotonic() + self._patience, FIRST_DELAY
        while not self._is_closed.is_set():
            began = clock.monotonic()
            try:
                await self._session()
                return
            except (OSError, TimeoutError, asyncio.CancelledError, self._asyncua.ua.UaError) as error:
                self._note_loss(error, clock.monotonic() > deadline)
            delay = FIRST_DELAY if clock.monotonic() - began > LONGEST_DELAY else min(2.0 * delay, LONGEST_DELAY)
            until = clock.monotonic() + delay
            while not self._is_closed.is_set() and clock.monotonic() < until:
                await asyncio.sleep(0.05)

    def _note_loss(self, error: BaseException, is_late: bool) -> None:
        said = _reason(error)
        if any(name in said for name in REJECTIONS):
            raise FeedError(f"{self.name}: the server rejects this client: {said}")
        if is_late and not self._is_ready.is_set():
            raise FeedError(f"{self.name}: the server cannot be reached: {said}")
        if not self._has_reported:
            self._has_reported = True
            what = "the connection to the server is lost" if self._is_ready.is_set() else "the server cannot be reached"
            self._put(f"{what}: {said}; trying again")

    async def _session(self) -> None:
        """Connect, subscribe, read what has been missed, and pass values on until the connection is lost."""
        client = await self._make_client()
        async with client:
            found = await self._browse(client)
            if not found and not self._is_ready.is_set():
                raise FeedError(f"{self.name}: there are no such nodes: {await self._names(client)}")
            self._nodes.update(found)
            self._is_ready.set()
            while not self._begins.is_set():
                await asyncio.sleep(0.02)
            overflow = self._asyncua.common.subscription.OverflowPolicy.DISCONNECT
            subscription = await client.create_subscription(
                1000.0 * self._interval, queue_maxsize=MOST_WAITING, overflow=overflow
            )
            await self._subscribe(subscription, found)
            # Their first values are those of now, since whenever; the others continue after what is known.
            new = {name for name, (_, key, column) in found.items() if (key, column) not in self._last}
            await self._read_history()
            self._has_reported = False
            await self._pass_on(client, subscription, new)

    async def _make_client(self) -> Any:
        client, settings = self._asyncua.Client(self._url, timeout=5.0), self._settings
        if self._login.user is not None:
            client.set_user(self._login.user)
            client.set_password(self._login.password or "")
        if "policy" in settings:
            await self._secure(client)
        return client

    async def _secure(self, client: Any) -> None:
        """Sign and encrypt what is sent, and accept only the server with its certificate, if that is named."""
        settings, crypto = self._settings, self._asyncua.crypto
        policy = getattr(crypto.security_policies, f"SecurityPolicy{settings['policy']}", None)
        mode = getattr(self._asyncua.ua.MessageSecurityMode, settings.get("mode", "SignAndEncrypt"), None)
        if policy is None or mode is None:
            raise FeedError(f"{self.name}: unknown policy or mode: use Basic256Sha256 and Sign or SignAndEncrypt")
        files = []
        for setting in ("cert", "key", SERVER):
            if setting in settings:
                # By their contents: asyncua goes by the ending of the name.
                content = Path(settings[setting]).read_bytes()
                ending = "pem" if content.lstrip().startswith(b"-----BEGIN") else "der"
                files.append(crypto.uacrypto.CertProperties(content, ending))
        try:
            # Servers compare it with the certificate.
            client.application_uri = _uri_of(files[0]) or client.application_uri
            await client.set_security(policy, *files[:2], None, files[2] if SERVER in settings else None, mode)
        except (ValueError, TypeError):
            raise FeedError(f"{self.name}: cert, key and server_cert do not fit, or are encrypted") from None

    async def _browse(self, client: Any) -> dict[str, tuple[Any, str | None, str]]:
        """Nodes of columns that are read, with their keys."""
        levels = self._pattern.filter.split("/")
        found: list[tuple[Any, list[str]]] = [(client.nodes.objects, [])]
        for level in levels:
            deeper = []
            for node, path in found:
                for child in await node.get_children_descriptions():
                    name = child.BrowseName.Name
                    if level in ("+", name):
                        deeper.append((client.get_node(child.NodeId), [*path, name]))
            found = deeper
        nodes = {}
        for node, path in found:
            fields = self._pattern.fields("/".join(name.replace("/", "_") for name in path))
            if fields[COLUMN] in self.readings:
                key = None if self.key is None else fields[self.key]
                nodes[node.nodeid.to_string()] = (node, key, fields[COLUMN])
        return nodes

    async def _names(self, client: Any) -> str:
        children = await client.nodes.objects.get_children_descriptions()
        return f"the folder Objects has {', '.join(shown(child.BrowseName.Name) for child in children[:10])}"

    async def _subscribe(self, subscription: Any, nodes: dict[str, tuple[Any, str | None, str]]) -> None:
        ua = self._asyncua.ua
        # Also values that stay the same: that a sensor still reports is news.
        changes = ua.DataChangeFilter(Trigger=ua.DataChangeTrigger.StatusValueTimestamp)
        requests = [
            subscription._make_monitored_item_request(
                node, ua.AttributeIds.Value, changes, NODE_QUEUE, ua.MonitoringMode.Reporting, 500.0 * self._interval
            )
            for node, _, _ in nodes.values()
        ]
        for answer, (_, key, column) in zip(
            await subscription.create_monitored_items(requests), nodes.values(), strict=True
        ):
            if isinstance(answer, ua.StatusCode):
                named = column if key is None else f"{column} of {key}"
                self._put(f"the server does not send {shown(named)}: {answer.name}")

    async def _read_history(self) -> None:
        """Values since the last ones that came before this session, in the order of their times."""
        if not self._last:
            return
        start = min(self._last.values())
        end = max(start, datetime.now(UTC))
        between = f"{start:%Y-%m-%d %H:%M:%S} and {end:%H:%M:%S} UTC"
        ua, n_values = self._asyncua.ua, 0
        try:
            for node, _, _ in self._nodes.values():
                if not (await node.read_attribute(ua.AttributeIds.Historizing)).Value.Value:
                    raise ua.UaError("not historized")
            until = start
            while until <= end and not self._is_closed.is_set():
                # The clock of the server may be ahead.
                start, until = until, until + HISTORY_SPAN if until + HISTORY_SPAN < end else end + CLOCKS
                values = []
                for node, key, column in self._nodes.values():
                    for each in await node.read_raw_history(start, until, return_bounds=False):
                        values += self._values(key, column, each)
                for value in sorted(values, key=lambda value: value.time):
                    await self._hand_over(value)
                n_values += len(values)
            self._put(f"{n_values} values between {between} were read from the history of the server")
        except ua.UaError as error:
            self.n_gaps += 1
            self._put(f"values between {between} may be missing: the server keeps no history ({_reason(error)})")

    async def _pass_on(self, client: Any, subscription: Any, first: set[str]) -> None:
        kinds, looked = self._asyncua.common.subscription, clock.monotonic()
        while not self._is_closed.is_set():
            event = await subscription.next_event(timeout=0.25)
            if event is None:
                await client.check_connection()
            elif isinstance(event, kinds.DataChangeEvent):
                identity = event.node.nodeid.to_string()
                _, key, column = self._nodes[identity]
                values = self._values(key, column, event.data.monitored_item.Value)
                if identity in first:
                    first.discard(identity)
                    values = [value._replace(now=max(value.time, datetime.now(UTC))) for value in values]
                for value in values:
                    await self._hand_over(value)
            elif isinstance(event, kinds.StatusChangeEvent):
                raise self._asyncua.ua.UaError(
                    f"the server has ended the subscription ({event.notification.Status.name})"
                )
            if clock.monotonic() - looked > LOOK:
                looked = clock.monotonic()
                new = {name: node for name, node in (await self._browse(client)).items() if name not in self._nodes}
                self._nodes.update(new)
                first |= new.keys()
                await self._subscribe(subscription, new)

    def _values(self, key: str | None, column: str, data: Any) -> list[_Value]:
        """The value of a node; none if it has no time."""
        time = data.SourceTimestamp or data.ServerTimestamp
        if time is None:
            return []
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        is_bad = data.StatusCode is not None and data.StatusCode.is_bad()
        return [_Value(key, column, time, None if is_bad or data.Value is None else data.Value.Value)]

    async def _hand_over(self, value: _Value) -> None:
        """Pass a value on; if too many wait, so does the server."""
        while not self._is_closed.is_set():
            try:
                self._arrived.put_nowait(value)
            except queue.Full:
                await asyncio.sleep(0.05)
                continue
            self._last[value.key, value.column] = max(value.time, self._last.get((value.key, value.column), value.time))
            return

    def _put(self, item: str | FeedError) -> None:
        while not self._is_closed.is_set():
            try:
                self._arrived.put(item, timeout=0.2)
                return
            except queue.Full:
                continue


SERVER = "server_cert"


def _uri_of(certificate: Any) -> str | None:
    """The name of an application in its certificate."""
    from cryptography import x509

    load = x509.load_pem_x509_certificate if certificate.extension == "pem" else x509.load_der_x509_certificate
    try:
        names = load(certificate.path_or_content).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return next(iter(names.value.get_values_for_type(x509.UniformResourceIdentifier)), None)


def _reason(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    name = type(error).__name__
    # Codes of OPC UA are names of their errors.
    return name if name.startswith("Bad") else " ".join(said.split())[:200]


def _import_asyncua() -> Any:
    try:
        import asyncua
        import asyncua.common.subscription
        import asyncua.crypto.security_policies
        import asyncua.crypto.uacrypto
    except ImportError:
        raise ValueError("OPC UA needs asyncua: pip install 'momostream[opcua]'") from None
    # It reports the loss of each connection, as we do.
    logging.getLogger("asyncua").addHandler(logging.NullHandler())
    return asyncua
