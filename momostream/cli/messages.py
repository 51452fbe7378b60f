"""Messages on standard error: notes, repeated messages, the reason for a slow start, missing packages."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

__all__ = [
    "Sparingly",
    "explain_compiling",
    "import_models",
    "log_messages",
    "notify",
    "require_matplotlib",
    "require_serve",
]

_log = logging.getLogger("momostream.serve")


def notify(message: str) -> None:
    """Print a message on standard error: predictions may be on standard output. A server logs it."""
    if _log.handlers:
        _log.warning(message)
    else:
        print(f"momostream: {message}", file=sys.stderr, flush=True)


class _JsonLines(logging.Formatter):
    """A log line as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"time": at, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_messages(as_json: bool = False, quiet: bool = False) -> None:
    """From here on, messages have a time and a level, or are JSON lines."""
    handler = logging.StreamHandler()
    form = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(_JsonLines() if as_json else form)
    _log.handlers[:] = [handler]
    _log.setLevel(logging.ERROR if quiet else logging.INFO)
    _log.propagate = False


def import_models(forecasts: bool = True, quiet: bool = False) -> None:
    """Import the models of rows and, if asked for, of forecasts; where that compiles them, print how long it takes.

    Commands call this before they import or load anything that needs compiled code.
    """
    with explain_compiling(quiet):
        import momostream.runs.run

        if forecasts:
            import momostream.horizon.model  # noqa: F401


@contextmanager
def explain_compiling(quiet: bool = False) -> Iterator[None]:
    """Print how long compiling is going to take, if there is anything to compile."""
    from momostream.kernels._workers import on_wait

    on_wait.append((lambda message: None) if quiet else notify)
    try:
        yield
    finally:
        on_wait.pop()


class Sparingly:
    """Print the first few of many messages, then one each time that their number has grown tenfold.

    Examples
    --------
    >>> sparing = Sparingly(print, first=1)
    >>> for number in range(1, 101):
    ...     sparing(f"row {number} is bad")
    row 1 is bad
    row 10 is bad (10 so far)
    row 100 is bad (100 so far)
    """

    def __init__(self, write: Callable[[str], object], first: int = 10) -> None:
        self._write, self._first, self._n, self._next = write, first, 0, 10 * first

    def __call__(self, message: str) -> None:
        """Count a message, and print it if it is due."""
        self._n += 1
        if self._n <= self._first:
            self._write(message)
        elif self._n == self._next:
            self._next *= 10
            self._write(f"{message} ({self._n:,} so far)")


def require_matplotlib(option: str) -> None:
    """Fail before any work is done, not after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"{option} needs matplotlib: pip install 'momostream[plot]'")


def require_serve(option: str) -> None:
    """Fail before any work is done, not after it."""
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise ValueError(f"{option} needs starlette and uvicorn: pip install 'momostream[serve]'")
