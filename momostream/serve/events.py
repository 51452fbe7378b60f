"""`GET /events`: what changes, sent to open pages about once a second; only what a page shows.

Tiles and alarms become text once, for all pages. Nothing waits in a queue. Each page remembers what it has been sent,
and a page that reads slowly gets the newest state when it reads again; one that does not read at all is dropped.
"""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from momostream.serve.machines import Machine
from momostream.serve.state import FeedState, as_json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["FAN_LEVELS", "EventStream", "View", "machine_details"]

# Seconds between two looks, without news until a sign of life, and until a page that does not read is dropped.
TICK, HEARTBEAT, PATIENCE = 1.0, 15.0, 20.0
#: Quantiles of the fan that is drawn.
FAN_LEVELS = (0.05, 0.25, 0.75, 0.95)


@dataclass
class View:
    """What a page shows, and what it has been sent.

    Parameters
    ----------
    state
        Of the feed.
    start, stop
        Tiles that can be seen, by their position in the order.
    search, health
        Filters of the tiles.
    machine
        Id of the machine that is shown; None shows none.
    """

    state: FeedState
    start: int = 0
    stop: int = 60
    search: str = ""
    health: str = ""
    machine: str | None = None
    _sent: dict[str, tuple[int, str]] = field(default_factory=dict)
    _order: list[str] | None = None
    _overview: dict[str, Any] | None = None
    _alarms: int = -1
    _alarm_order: list[str] = field(default_factory=list)
    _row: int = 0
    _looks: int = -1
    _machine: int = -1

    def news(self) -> Iterator[tuple[str, str]]:
        """Names of the events since the last look, and their data as JSON."""
        if self.state.plan is None:
            return
        overview = feed_overview(self.state)
        if overview != self._overview:
            self._overview = overview
            yield "overview", as_json(overview)
        yield from self._tiles()
        yield from self._new_alarms()
        if self.machine is not None:
            yield from self._details(self.machine)

    def _new_alarms(self) -> Iterator[tuple[str, str]]:
        """The ids of the newest alarms in order, and those of them that have changed."""
        version, newest = self.state.newest_alarms()
        if version != self._alarms:
            known = set(self._alarm_order)
            changed = ",".join(text for id, at, text in newest if at > self._alarms or id not in known)
            self._alarms, self._alarm_order = version, [id for id, _, _ in newest]
            yield "alarms", f'{{"order":{as_json(self._alarm_order)},"records":[{changed}]}}'

    def _tiles(self) -> Iterator[tuple[str, str]]:
        found = self.state.ordered(self.search, self.health)
        seen = found[self.start : self.stop]
        order = [machine.id for machine, _ in seen]
        changed = [pair for pair in seen if self._sent.get(pair[0].id) != (pair[0].version, pair[1])]
        if changed or order != self._order:
            self._order = order
            self._sent = {machine.id: (machine.version, health) for machine, health in seen}
            tiles = ",".join(self.state.tile(machine, health).text for machine, health in changed)
            yield "tiles", f'{{"from":{self.start},"total":{len(found)},"order":{as_json(order)},"tiles":[{tiles}]}}'

    def _details(self, id: str) -> Iterator[tuple[str, str]]:
        machine = self.state.find(id)
        # The state of a machine may change without a row: it becomes silent, or its alarm is acknowledged.
        if machine is None or machine.version == self._machine:
            return
        details = machine_details(self.state, machine, after=self._row, looks=self._looks)
        self._machine, self._row, self._looks = details.pop("version"), machine.last_number, machine.n_looks
        yield "machine", as_json(details)


def feed_overview(state: FeedState) -> dict[str, Any]:
    """Counts of a feed."""
    counts = state.counts()
    kinds = [machine.time_kind for machine in list(state.machines.values())[:1]]
    return {
        "feed": state.name, "status": state.status, "problem": state.problem, "counts": counts,
        "machines": len(state.machines), "rows": state.n_rows, "rejected": state.n_bad,
        "time_kind": kinds[0] if kinds else None,
    }  # fmt: skip


def machine_details(state: FeedState, machine: Machine, after: int = 0, looks: int = -1) -> dict[str, Any]:
    """All about a machine: its rows after a number; weights and relevance if there were not as many looks before."""
    with state.lock:
        stamps = machine.stamps.rows()
        n_new = int((stamps[:, 0] > after).sum())
        return {
            "id": machine.id, "name": machine.name[:2000], "health": state.health(machine), "version": machine.version,
            "time_kind": machine.time_kind, "n_rows": machine.n_rows + machine.n_known, "whole": after == 0,
            "history": machine.history(n_new), "forecast": machine.forecast(FAN_LEVELS),
            "earlier": machine.earlier(), "scores": machine.scores,
            "weights": machine.weights.plain() if looks != machine.n_looks else None,
            "relevance": machine.relevance.plain() if looks != machine.n_looks else None,
        }  # fmt: skip


class EventStream:
    """The answer to ``GET /events``.

    Parameters
    ----------
    view
        What the page shows.
    counter
        Counts open pages under ``"pages"``.
    """

    def __init__(self, view: View, counter: dict[str, int]) -> None:
        self.view, self.counter = view, counter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the page goes away."""
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self.counter["pages"] += 1
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await self._send_news(send, gone)
        except TimeoutError:
            pass
        finally:
            self.counter["pages"] -= 1
            gone.cancel()

    async def _send_news(self, send: Send, gone: asyncio.Task[None]) -> None:
        said = clock.monotonic()
        await self._send(send, "retry: 2000\n\n")
        while not gone.done() and not self.counter.get("closing"):
            text = "".join(event_text(name, data) for name, data in self.view.news())
            if not text and clock.monotonic() - said > HEARTBEAT:
                text = ": still here\n\n"
            if text:
                await self._send(send, text)
                said = clock.monotonic()
            await asyncio.wait([gone], timeout=TICK)

    async def _send(self, send: Send, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def event_text(name: str, data: str) -> str:
    r"""An event as it is sent: JSON has no newlines, so that one line holds it.

    Examples
    --------
    >>> event_text("tiles", as_json({"name": "a"}))
    'event: tiles\ndata: {"name":"a"}\n\n'
    """
    return f"event: {name}\ndata: {data}\n\n"


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def view_from(query: Mapping[str, str], state: FeedState, start: int, stop: int) -> View:
    """The view of a request."""
    return View(
        state, start, stop, query.get("search", "")[:200], query.get("health", "")[:20], query.get("machine") or None
    )
