"""Run feeds in threads and serve them: `FeedWorker` for each feed, `PageServer` for page and interface."""

from __future__ import annotations

import logging
import socket
import threading
import time as clock
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from ssl import SSLContext
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from momostream.runs.run import Run
from momostream.serve.api import Interface, make_app
from momostream.serve.book import Book
from momostream.serve.config import ServeConfig
from momostream.serve.security import Tokens
from momostream.serve.state import FeedState

__all__ = ["FeedWorker", "PageServer"]

# Seconds until the first byte of a request, between requests, and for open pages when the server ends.
HEADER_SECONDS, KEEP_SECONDS, END_SECONDS = 15.0, 30, 3
MOST_CONNECTIONS = 1000

_log = logging.getLogger("momostream.serve")

OpenRun = Callable[[], AbstractContextManager[tuple[Run, Any]]]


class FeedWorker:
    """Runs one feed in a thread of its own, and keeps its state.

    Parameters
    ----------
    state
        Gets what happens.
    open_run
        Opens the run and its feed; called in the thread, which alone may use the store.
    """

    def __init__(self, state: FeedState, open_run: OpenRun, book_path: Path | None) -> None:
        self.state, self._open_run, self._book_path = state, open_run, book_path
        self._thread = threading.Thread(target=self._work, name=f"feed {state.name}", daemon=True)
        self._run: Run | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _work(self) -> None:
        book = None
        try:
            book = Book(self._book_path)
            with self._open_run() as (run, source):
                self._run = run
                if self._is_stopping:
                    return
                is_journal = self.state.config.is_pushed
                if is_journal:
                    # Before the feed is called running: from then on, rows are accepted.
                    source.open()
                self.state.begin(run, book, source if is_journal else None)
                _log.info("%s: running, %s rows learnt so far", self.state.name, f"{run.n_rows:,}")
                run.run(self.state.config.limit)
            self.state.end()
            _log.info("%s: ended after %s rows", self.state.name, f"{run.n_rows:,}")
        except (ValueError, OSError) as error:
            self.state.end(str(error))
            _log.error("%s: %s", self.state.name, error)
        except Exception as error:
            self.state.end(f"{type(error).__name__}: {error}")
            _log.exception("%s: failed", self.state.name)
        finally:
            if self.state.status != "failed":
                self.state.end()
            if book is not None:
                book.close()

    def stop(self) -> None:
        """Let the run end after the rows in hand."""
        self._is_stopping = True
        if self._run is not None:
            self._run.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it came in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()


class _TimedProtocol(H11Protocol):
    """Closes a connection whose first request does not come: nobody may keep connections for nothing."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEADER_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class PageServer:
    """Serves page and interface, in this thread or in one of its own.

    Parameters
    ----------
    states
        Of the feeds.
    config, tokens
        Address, limits, secrets.
    tls
        Certificate and key, to serve by HTTPS.

    Attributes
    ----------
    address : str
        Where the page is.
    """

    def __init__(
        self, states: list[FeedState], config: ServeConfig, tokens: Tokens | None = None, tls: SSLContext | None = None
    ) -> None:
        self.interface = Interface({state.name: state for state in states}, config, tokens or Tokens())
        host, port = config.host_and_port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ValueError(f"cannot serve on {config.address}: {error.strerror}") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{'http' if tls is None else 'https'}://{shown}:{self._socket.getsockname()[1]}/"
        settings = uvicorn.Config(
            make_app(self.interface), http=_TimedProtocol, loop="asyncio", ws="none", lifespan="off", log_config=None,
            access_log=False, timeout_keep_alive=KEEP_SECONDS, timeout_graceful_shutdown=END_SECONDS,
            limit_concurrency=MOST_CONNECTIONS, server_header=False, date_header=True, proxy_headers=False,
            h11_max_incomplete_event_size=32_768,
        )  # fmt: skip
        # After `load`, which would make a context of its own from names of files.
        settings.load()
        settings.ssl = tls
        self._server = uvicorn.Server(settings)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve in a thread of its own; returns when requests are answered."""
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)
        self._thread.start()
        until = clock.monotonic() + 10.0
        while not self._server.started and self._thread.is_alive() and clock.monotonic() < until:
            clock.sleep(0.01)

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End all requests."""
        self.interface.counter["closing"] = 1
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(END_SECONDS + 5.0)
        self._socket.close()
