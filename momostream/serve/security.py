"""Who may ask what: tokens, names of this host, sizes and rates of requests, and headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time as clock
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from momostream.feeds.secrets import read_secret
from momostream.serve.config import ServeConfig

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["COOKIE", "Guard", "Rates", "Tokens", "check_address", "is_loopback"]

#: Cookie that the page has after a token was entered.
COOKIE = "momostream"
# Clients whose rates are remembered.
MOST_CLIENTS = 10_000
# Of an answer: nothing from elsewhere, no script or style inside the page, in no frame.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# Open to everyone: health checks have no token, and the page must be able to ask for one.
OPEN_PATHS = {"/healthz", "/readyz", "/login", "/", "/docs", "/openapi.json"}


@dataclass(frozen=True)
class Tokens:
    """Tokens for reading, and for reading and writing; None: everyone may.

    Examples
    --------
    >>> tokens = Tokens(read="look", write="touch")
    >>> [tokens.right_of(given) for given in ("look", "touch", "guess")]
    ['read', 'write', None]
    """

    read: str | None = None
    write: str | None = None

    @classmethod
    def of(cls, config: ServeConfig, folder: Path) -> Tokens:
        """Tokens of the environment, else of the files that the configuration names."""
        read = read_secret("MOMOSTREAM_READ_TOKEN", config.read_token_file, folder)
        write = read_secret("MOMOSTREAM_WRITE_TOKEN", config.write_token_file, folder)
        for name, token in (("read", read), ("write", write)):
            if token is not None and len(token) < 12:
                raise ValueError(f"the {name} token has {len(token)} characters: use at least 12")
        if read is not None and write is None:
            raise ValueError("there is a read token and no write token: set both, or only the write token")
        return cls(read, write)

    @property
    def are_needed(self) -> bool:
        """Whether a request needs one."""
        return self.write is not None

    def right_of(self, given: str) -> str | None:
        """What a token allows: "write" (and reading), "read", or None; takes the same time for every token."""
        data = given.encode(errors="replace")
        may_write = self.write is not None and hmac.compare_digest(data, self.write.encode())
        may_read = self.read is not None and hmac.compare_digest(data, self.read.encode())
        return "write" if may_write else "read" if may_read else None

    def cookie(self, right: str) -> str:
        """The value of the cookie for a right: it proves the token without holding it."""
        token = (self.write if right == "write" else self.read) or ""
        return hmac.new(token.encode(), b"momostream page", hashlib.sha256).hexdigest()

    def right_of_cookie(self, given: str) -> str | None:
        """What a cookie allows."""
        known = [right for right in ("write", "read") if getattr(self, right) is not None]
        found = [
            right for right in known if hmac.compare_digest(given.encode(errors="replace"), self.cookie(right).encode())
        ]
        return found[0] if found else None


def check_address(config: ServeConfig, tokens: Tokens) -> str | None:
    """Check that an address other than loopback has tokens; a warning where that was switched off."""
    host, _ = config.host_and_port
    if is_loopback(host) or tokens.are_needed:
        return None
    if not config.insecure:
        raise ValueError(
            f"{config.address} can be reached from other machines, and there is no token: set MOMOSTREAM_WRITE_TOKEN "
            "or serve.write_token_file, or serve on 127.0.0.1"
        )
    return f"WARNING: everyone who reaches {config.address} can read all feeds, push rows and acknowledge alarms"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Rates:
    """Counts requests of each client: ``rate`` per second on average, bursts of ten seconds' worth.

    Examples
    --------
    >>> rates = Rates(rate=1.0)
    >>> [rates.takes("a", now=0.0) for _ in range(11)].count(True), rates.takes("a", now=1.5)
    (10, True)
    """

    def __init__(self, rate: float) -> None:
        self.rate, self.burst = rate, 10.0 * rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def takes(self, client: str, now: float | None = None) -> bool:
        """Whether a request of a client is within its rate."""
        at = clock.monotonic() if now is None else now
        left, before = self._left.pop(client, (self.burst, at))
        left = min(self.burst, left + (at - before) * self.rate)
        self._left[client] = (left - 1.0 if left >= 1.0 else left, at)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1.0


class Guard:
    """Stands before the interface: looks at every request before anything else does.

    Parameters
    ----------
    app
        What is guarded.
    config, tokens
        Limits and secrets.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig, tokens: Tokens) -> None:
        self.app, self.config, self.tokens = app, config, tokens
        self.rates = Rates(config.rate)
        host, _ = config.host_and_port
        self._hosts = {"localhost", "127.0.0.1", "::1", host, *config.hosts}
        # Names are checked where a foreign page could reach us under a name of its own: on loopback without tokens.
        self._checks_host = is_loopback(host) and not tokens.are_needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not allowed, else hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *pairs]}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(send_guarded, *refused)
            return
        await self.app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]] | None:
        client = scope["client"][0] if scope.get("client") else ""
        path, method = scope["path"], scope["method"]
        if path != "/healthz" and not self.rates.takes(client):
            return 429, "too many requests: wait a second", {"retry-after": "1"}
        if self._checks_host and _host_name(headers.get("host", "")) not in self._hosts:
            return 421, "this server is not known under that name: add it to serve.hosts", {}
        origin = headers.get("origin")
        if method not in {"GET", "HEAD"} and origin and urlsplit(origin).netloc != headers.get("host"):
            return 403, "requests of other sites are not accepted", {}
        right = self._right(headers)
        scope.setdefault("state", {})["right"] = right
        if path in OPEN_PATHS or path.startswith("/static/"):
            return None
        if right is None:
            return 401, "a token is needed: send it as 'Authorization: Bearer TOKEN'", {"www-authenticate": "Bearer"}
        if method not in {"GET", "HEAD"} and right != "write":
            return 403, "this token may only read", {}
        return None

    def _right(self, headers: Mapping[str, str]) -> str | None:
        tokens = self.tokens
        if not tokens.are_needed:
            return "write"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return tokens.right_of(given.strip())
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        return tokens.right_of_cookie(cookies[COOKIE]) if COOKIE in cookies else None


def _host_name(host: str) -> str:
    return host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]


async def _answer(send: Any, status: int, what: str, headers: Mapping[str, str]) -> None:
    from starlette.responses import JSONResponse

    response = JSONResponse({"error": what}, status, headers={**headers, "connection": "close"})
    await send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
