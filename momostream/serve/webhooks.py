"""Alarms to other systems: each line of a store by HTTP, in order, until it has arrived."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from momostream.feeds.messages import Attempts
from momostream.feeds.posting import make_opener
from momostream.serve.book import Book
from momostream.storage.database import StoreError
from momostream.storage.store import Store

__all__ = ["AlarmSender", "Webhook", "post_json", "signature"]

# Seconds between two looks at the store.
PAUSE = 1.0
# Alarms that are read at once.
MOST_LINES = 200

_log = logging.getLogger("momostream.serve")

Post = Callable[[str, bytes, dict[str, str], float], None]


def signature(secret: str, body: bytes) -> str:
    """The signature of a body.

    Examples
    --------
    >>> signature("secret", b"{}")[:20]
    'sha256=77325902caca8'
    """
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


_opener = make_opener()


def post_json(url: str, body: bytes, headers: dict[str, str], timeout: float) -> None:
    """Send a body; an `OSError` if it is not answered with 2xx in time."""
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers}, method="POST")
    with _opener.open(request, timeout=timeout) as answer:
        answer.read(1000)


class AlarmSender:
    """Sends the alarms of one store elsewhere, in a thread of its own.

    Parameters
    ----------
    feed, store, book
        As in `Webhook`.
    timeout, pause
        Seconds to wait for an answer, and between two looks at the store.
    """

    def __init__(self, feed: str, store: Path, book: Path, timeout: float, pause: float = PAUSE) -> None:
        self.feed, self.store, self.book, self.timeout, self.pause = feed, store, book, timeout, pause
        self._ended = threading.Event()
        self._attempts = Attempts()
        self._thread = threading.Thread(target=self._work, name=f"alarms of {feed}", daemon=True)
        self.n_sent = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the alarm in hand."""
        self._ended.set()
        self._thread.join(self.timeout + 5.0)

    def deliver(self) -> bool:
        """Send what waits, up to the first one that does not arrive; whether all did."""
        raise NotImplementedError

    def _work(self) -> None:
        while not self._ended.wait(self.pause):
            if self.store.exists() and self._attempts.is_due():
                try:
                    self.deliver()
                except (StoreError, ValueError) as error:
                    _log.error("%s: alarms cannot be read: %s", self.feed, error)


class Webhook(AlarmSender):
    """Sends the alarms of one store to one address, in a thread of its own.

    Parameters
    ----------
    feed
        Name of the feed.
    store
        Path of the store, which is only read.
    book
        Path of the book, which keeps how far the address has got.
    url, secret, timeout
        Address, secret of the signatures, seconds to wait for an answer.
    post
        Sends a body.
    """

    def __init__(
        self,
        feed: str,
        store: Path,
        book: Path,
        url: str,
        secret: str | None = None,
        timeout: float = 10.0,
        post: Post = post_json,
    ) -> None:
        super().__init__(feed, store, book, timeout)
        self.url, self.secret = url, secret
        self._post = post

    def deliver(self) -> bool:
        """Send what waits, up to the first one that does not arrive; whether all did."""
        book = Book(self.book)
        try:
            with Store(self.store, read_only=True) as store:
                number = book.sent(self.url)
                for line, (found, alarm) in enumerate(store.alarms(number)):
                    if line == MOST_LINES or self._ended.is_set():
                        return False
                    if not self._send(found, alarm.text):
                        return False
                    book.note_sent(self.url, found)
            return True
        finally:
            book.close()

    def _send(self, number: int, text: str) -> bool:
        body = json.dumps({"feed": self.feed, "number": number, "alarm": json.loads(text)}).encode()
        headers = {} if self.secret is None else {"x-momostream-signature": signature(self.secret, body)}
        try:
            self._post(self.url, body, headers, self.timeout)
        except (OSError, urllib.error.URLError) as error:
            if self._attempts.note(succeeded=False):
                # Without the path, which may hold a secret.
                host = self.url.partition("://")[2].partition("/")[0].rpartition("@")[2]
                _log.warning("%s: alarm %d did not arrive at %s: %s; trying again", self.feed, number, host, error)
            return False
        self._attempts.note(succeeded=True)
        self.n_sent += 1
        return True
