"""The HTTP interface: rows in; forecasts, history, scores, alarms, risks and counts out."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from momostream import __version__
from momostream.distributions.forecast import Forecast
from momostream.feeds.formats import Rejected
from momostream.serve.config import ServeConfig
from momostream.serve.documents import docs_html, openapi
from momostream.serve.events import FAN_LEVELS, EventStream, feed_overview, machine_details, view_from
from momostream.serve.files import PageFile, page_files
from momostream.serve.journal import JournalBusy, JournalFull
from momostream.serve.machines import Machine
from momostream.serve.metrics import metrics_text
from momostream.serve.push import BadBody, RowParser
from momostream.serve.requests import ApiError, choice, number, numbers, read_body, whole
from momostream.serve.risk import MOST_MACHINES, risk
from momostream.serve.security import COOKIE, Guard, Tokens
from momostream.serve.state import HEALTH, FeedState

__all__ = ["Interface", "make_app"]

# Rejected rows that an answer names; open pages; machines and alarms of an answer.
MOST_NAMED, MOST_PAGES, MOST_LISTED = 100, 300, 500

_log = logging.getLogger("momostream.serve")


@dataclass
class Interface:
    """What the interface serves: feeds by name, limits, tokens, counts."""

    states: dict[str, FeedState]
    config: ServeConfig = field(default_factory=ServeConfig)
    tokens: Tokens = field(default_factory=Tokens)
    parsers: dict[str, RowParser] = field(default_factory=dict)
    counter: dict[str, int] = field(default_factory=lambda: {"pages": 0, "errors": 0})
    files: dict[str, PageFile] = field(default_factory=page_files)

    # ------------------------------------------------------------------ rows in

    async def push(self, request: Request) -> Response:
        """``POST /feeds/{feed}/rows``."""
        state = self._feed(request)
        if not state.config.is_pushed:
            raise ApiError(
                405, f"the feed {state.name!r} reads {state.config.source.partition(':')[0]}: it takes no rows"
            )
        skip = choice(request.query_params, "bad_rows", state.config.bad_rows or "stop", ("stop", "skip")) == "skip"
        choice(request.query_params, "precision", "ns", ("ns", "us", "ms", "s"))
        choice(request.query_params, "format", "", ("", "influx", "json"))
        body = await read_body(request, int(self.config.max_body_mb * 1e6), self.config.timeout)
        accepted = await run_in_threadpool(self._push, state, request, body, skip)
        return JSONResponse(accepted, 202)

    def _push(self, state: FeedState, request: Request, body: bytes, skip: bool) -> dict[str, Any]:
        if state.plan is None or state.journal is None:
            raise ApiError(503, "the feed is starting: send the rows again", retry_after=1)
        parser = self.parsers.get(state.name)
        if parser is None:
            config = state.config
            parser = RowParser(state.plan, config.sequence, config.time_format, self.config.max_rows)
            self.parsers[state.name] = parser
        try:
            if _is_line_protocol(request, body):
                rows = parser.line_protocol(body, request.query_params.get("precision", "ns"))
            else:
                rows = parser.json_lines(body)
        except BadBody as error:
            raise ApiError(413 if "more than" in str(error) else 422, str(error)) from None
        bad = [row.event for row in rows if isinstance(row.event, Rejected)]
        named = [{"row": each.number, "reason": each.reason} for each in bad[:MOST_NAMED]]
        if bad and not skip:
            what = f"{len(bad)} of {len(rows)} rows cannot be used, and none was accepted"
            raise ApiError(422, f"{what}: row {bad[0].number}: {bad[0].reason}", rows=named)
        try:
            done = state.journal.append(rows)
        except JournalBusy as error:
            raise ApiError(503, f"{error}: send the rows again", retry_after=1) from None
        except JournalFull as error:
            raise ApiError(507, f"the rows cannot be written: {error}", retry_after=10) from None
        state.n_repeated += done.repeated
        answer = {"accepted": done.accepted, "repeated": done.repeated, "rejected": done.rejected}
        return answer | {"last_row": done.last_number, "rows": named}

    # ------------------------------------------------------------------ forecasts, history, scores

    def feeds(self, request: Request) -> Response:
        """``GET /feeds``."""
        return JSONResponse([self._describe(state) for state in self.states.values()])

    def _describe(self, state: FeedState) -> dict[str, Any]:
        plan, config = state.plan, state.config
        about: dict[str, Any] = {"name": state.name, "title": config.title or state.name, "units": dict(config.units)}
        about |= {"is_pushed": config.is_pushed}
        if plan is None:
            return about | {"status": state.status, "problem": state.problem}
        about |= {
            "targets": list(plan.targets), "inputs": list(plan.inputs), "horizon": plan.horizon, "level": plan.level,
            "key": plan.key, "time": plan.time, "alarm_level": config.alarm_level,
        }  # fmt: skip
        return about | feed_overview(state)

    def machines(self, request: Request) -> Response:
        """``GET /feeds/{feed}/machines``."""
        state, query = self._feed(request), request.query_params
        start, n = whole(query, "offset", 0, 0, 10**9), whole(query, "limit", 100, 1, MOST_LISTED)
        health = choice(query, "health", "", ("", *HEALTH))
        found = state.ordered(query.get("search", "")[:200], health) if state.plan is not None else []
        tiles = [state.tile(machine, of).data for machine, of in found[start : start + n]]
        return JSONResponse({"total": len(found), "machines": tiles})

    def machine(self, request: Request) -> Response:
        """``GET /feeds/{feed}/machine``."""
        state = self._feed(request)
        return JSONResponse(machine_details(state, self._machine(state, request)))

    def forecasts(self, request: Request) -> Response:
        """``GET /feeds/{feed}/forecasts``."""
        state, query = self._feed(request), request.query_params
        levels = numbers(query, "levels", "", 0.0, 1.0, 50)
        if "key" in query or "machine" in query:
            machines = [self._machine(state, request)]
        else:
            start, n = whole(query, "offset", 0, 0, 10**9), whole(query, "limit", 100, 1, MOST_LISTED)
            machines = [machine for machine, _ in self._ordered(state)[start : start + n]]
        with state.lock:
            found = [(machine, machine.forecast(levels)) for machine in machines]
        return JSONResponse([_named(machine, forecast) for machine, forecast in found if forecast is not None])

    def history(self, request: Request) -> Response:
        """``GET /feeds/{feed}/history``."""
        state = self._feed(request)
        n = min(whole(request.query_params, "limit", state.n_history, 1, 10**9), state.n_history)
        machine = self._machine(state, request)
        with state.lock:
            return JSONResponse(_named(machine, machine.history(n)))

    def scores(self, request: Request) -> Response:
        """``GET /feeds/{feed}/scores``."""
        state, query = self._feed(request), request.query_params
        if "key" in query or "machine" in query:
            machines = [self._machine(state, request)]
        else:
            machines = [machine for machine, _ in self._ordered(state)]
        with state.lock:
            return JSONResponse([_named(machine, {"scores": machine.scores}) for machine in machines])

    def risk(self, request: Request) -> Response:
        """``GET /feeds/{feed}/risk``."""
        state, query = self._feed(request), request.query_params
        if state.plan is None or state.plan.horizon is None:
            raise ApiError(409, "this feed has no horizon: it predicts single rows")
        target = choice(query, "target", state.plan.targets[0], state.plan.targets)
        below, above = number(query, "below"), number(query, "above")
        if (below is None) == (above is None):
            raise ApiError(422, "expected one number, in below or in above", "below")
        machines = [machine for machine, _ in self._ordered(state)]
        if query.get("sum") != "all":
            machines = [self._machine(state, request)]
        if len(machines) > MOST_MACHINES:
            raise ApiError(422, f"a sum over {len(machines)} machines is too large: at most {MOST_MACHINES}", "sum")
        with state.lock:
            found = [(machine, machine.predicted) for machine in machines]
        forecasts = [
            predicted.prediction
            for _, predicted in found
            if predicted is not None and isinstance(predicted.prediction, Forecast)
        ]
        forecasts = [forecast for forecast in forecasts if target in forecast.series]
        if not forecasts or len(forecasts) < len(found) and query.get("sum") != "all":
            raise ApiError(409, "there is no forecast since the start: ask again after the next row")
        most = min(map(len, forecasts)) if isinstance(state.plan.horizon, str) else state.plan.horizon
        n_steps = whole(query, "steps", most, 1, most)
        answer = risk(forecasts, target, below, above, n_steps)
        times = found[0][0].forecast()
        return JSONResponse(answer | {"machines": len(forecasts), "times": (times or {}).get("time", [])[:n_steps]})

    # ------------------------------------------------------------------ alarms

    def alarms(self, request: Request) -> Response:
        """``GET /alarms``."""
        query = request.query_params
        which = choice(query, "state", "all", ("all", "open", "ended", "unacknowledged"))
        n = whole(query, "limit", 100, 1, MOST_LISTED)
        states = [self._named_feed(query["feed"])] if "feed" in query else list(self.states.values())
        found = []
        for state in states:
            with state.lock:
                found += [record.plain() for record in state.alarms.newest() if _is_wanted(record, which)]
        machine = query.get("machine")
        found = [each for each in found if machine is None or each["machine"] == machine]
        found.sort(key=lambda each: (each["end"] is not None, -each["begin"], each["id"]))
        return JSONResponse({"total": len(found), "alarms": found[:n]})

    async def acknowledge(self, request: Request) -> Response:
        """``POST /alarms/{id}/acknowledge``."""
        body = await read_body(request, 10_000, self.config.timeout)
        try:
            said = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            raise ApiError(422, "is not JSON", "body") from None
        by = said.get("by", "") if isinstance(said, dict) else None
        if not isinstance(by, str) or len(by) > 100:
            raise ApiError(422, "expected a text of at most 100 characters", "by")
        for state in self.states.values():
            record = await run_in_threadpool(state.acknowledge, request.path_params["id"], _printable(by))
            if record is not None:
                return JSONResponse(record.plain())
        raise ApiError(404, "there is no such alarm", "id")

    # ------------------------------------------------------------------ live

    async def events(self, request: Request) -> Any:
        """``GET /events``."""
        query = request.query_params
        if self.counter["pages"] >= MOST_PAGES:
            raise ApiError(503, "too many open pages", retry_after=10)
        state = self._named_feed(query.get("feed") or next(iter(self.states)))
        start, stop = whole(query, "from", 0, 0, 10**9), whole(query, "to", 60, 0, 10**9)
        return EventStream(view_from(query, state, start, min(stop, start + MOST_LISTED)), self.counter)

    async def healthz(self, request: Request) -> Response:
        """``GET /healthz``: the process answers."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(self, request: Request) -> Response:
        """``GET /readyz``: all feeds run, or have ended as they should."""
        feeds = {state.name: state.status for state in self.states.values()}
        ready = all(status in {"running", "ended"} for status in feeds.values())
        return JSONResponse({"ready": ready, "feeds": feeds}, 200 if ready else 503)

    def metrics(self, request: Request) -> Response:
        """``GET /metrics``."""
        text = metrics_text(self.states.values(), self.counter["pages"], self.counter["errors"])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    # ------------------------------------------------------------------ page

    # What the page begins with does not wait for threads, which rows need.

    async def page(self, request: Request) -> Response:
        """``GET /``: the page."""
        return self.files["index.html"].answer(request)

    async def static(self, request: Request) -> Response:
        """``GET /static/...``: its scripts and styles."""
        file = self.files.get(request.path_params["path"])
        if file is None:
            raise ApiError(404, "there is no such file")
        return file.answer(request)

    async def about(self, request: Request) -> Response:
        """``GET /about``: what the page needs to begin."""
        right = request.scope.get("state", {}).get("right")
        feeds = [self._describe(state) for state in self.states.values()]
        return JSONResponse({"title": self.config.title, "right": right, "feeds": feeds, "levels": FAN_LEVELS})

    async def login(self, request: Request) -> Response:
        """``POST /login``: a token for a cookie."""
        body = await read_body(request, 10_000, self.config.timeout)
        try:
            given = json.loads(body)["token"]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise ApiError(422, "expected a JSON object with a token", "token") from None
        right = self.tokens.right_of(given) if isinstance(given, str) else None
        if right is None:
            raise ApiError(401, "this token is not known")
        response = JSONResponse({"right": right})
        secure = request.url.scheme == "https"
        value = self.tokens.cookie(right)
        response.set_cookie(COOKIE, value, max_age=30 * 86400, httponly=True, samesite="strict", secure=secure)
        return response

    def docs(self, request: Request) -> Response:
        """``GET /docs``."""
        return Response(docs_html(), media_type="text/html")

    def openapi(self, request: Request) -> Response:
        """``GET /openapi.json``."""
        return JSONResponse(openapi(self.states))

    # ------------------------------------------------------------------ helpers

    def _feed(self, request: Request) -> FeedState:
        return self._named_feed(request.path_params["feed"])

    def _named_feed(self, name: str) -> FeedState:
        state = self.states.get(name)
        if state is None:
            raise ApiError(404, "there is no such feed", "feed")
        return state

    def _machine(self, state: FeedState, request: Request) -> Machine:
        query = request.query_params
        machine = state.find(query.get("machine"), query.get("key"))
        if machine is None:
            raise ApiError(404, "there is no such machine", "machine" if "machine" in query else "key")
        return machine

    def _ordered(self, state: FeedState) -> list[tuple[Machine, str]]:
        return [] if state.plan is None else state.ordered()


def _named(machine: Machine, values: dict[str, Any]) -> dict[str, Any]:
    return {"key": machine.key, "machine": machine.id, **values}


def _is_wanted(record: Any, which: str) -> bool:
    if which == "unacknowledged":
        return record.acknowledged is None
    return which == "all" or record.is_open == (which == "open")


def _is_line_protocol(request: Request, body: bytes) -> bool:
    """Whether a body is line protocol: by what it is asked to be, else by its kind; browsers call all texts plain."""
    asked = request.query_params.get("format")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = body.lstrip()[:1] in {b"{", b"["}
    return asked == "influx" or (asked is None and kind in {"text/plain", "application/vnd.influx"} and not is_json)


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable()).strip()


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    retry = error.more.pop("retry_after", None)
    return JSONResponse(error.plain(), error.status, headers={} if retry is None else {"retry-after": str(retry)})


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def make_app(interface: Interface) -> Starlette:
    """The application of an interface, guarded."""

    async def on_error(request: Request, error: Exception) -> Response:
        interface.counter["errors"] += 1
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "the server failed; its log says why"}, 500)

    def get(path: str, endpoint: Callable[[Request], Response | Awaitable[Response]]) -> Route:
        return Route(path, endpoint, methods=["GET"])

    routes = [
        Route("/feeds/{feed}/rows", interface.push, methods=["POST"]),
        get("/feeds", interface.feeds),
        get("/feeds/{feed}/machines", interface.machines),
        get("/feeds/{feed}/machine", interface.machine),
        get("/feeds/{feed}/forecasts", interface.forecasts),
        get("/feeds/{feed}/history", interface.history),
        get("/feeds/{feed}/scores", interface.scores),
        get("/feeds/{feed}/risk", interface.risk),
        get("/alarms", interface.alarms),
        Route("/alarms/{id}/acknowledge", interface.acknowledge, methods=["POST"]),
        get("/events", interface.events),
        get("/healthz", interface.healthz),
        get("/readyz", interface.readyz),
        get("/metrics", interface.metrics),
        get("/openapi.json", interface.openapi),
        get("/docs", interface.docs),
        get("/about", interface.about),
        Route("/login", interface.login, methods=["POST"]),
        get("/", interface.page),
        get("/static/{path:path}", interface.static),
    ]
    handlers: Any = {ApiError: _on_api_error, HTTPException: _on_http_error, Exception: on_error}
    guard = Middleware(Guard, config=interface.config, tokens=interface.tokens)
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[guard])
