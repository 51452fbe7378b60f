"""The interface described for programs (`openapi`) and for people (`docs_html`)."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from momostream import __version__

__all__ = ["docs_html", "openapi"]

_FEED = {
    "name": "feed",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Name of the feed.",
}
_TEXTS = {"type": "object"}


def _query(name: str, words: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema or {"type": "string"},
        "description": words,
    }


_KEY = _query("key", "Key of the machine.")
_MACHINE = _query("machine", "Id of the machine, instead of its key.")
_OFFSET = _query("offset", "Machines to skip.", type="integer", minimum=0, maximum=10**9)
_LIMIT = _query("limit", "Most that are listed.", type="integer", minimum=1, maximum=500)


def _answers(success: int, words: str, *errors: int, media: str = "application/json") -> dict[str, Any]:
    said = {
        400: "The request cannot be read.", 401: "A token is needed, or this one is not known.",
        403: "This token may only read, or the request comes from another site.", 404: "There is no such thing.",
        405: "This feed takes no rows.", 408: "The body did not come in time.", 409: "There is no forecast yet.",
        413: "Too large: send less at once.", 422: "A field is wrong; the answer names it.",
        429: "Too many requests: wait.", 503: "Not now: send it again.", 507: "The disk is full.",
    }  # fmt: skip
    found = {str(success): {"description": words, "content": {media: {"schema": {}}}}}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return found | {
        str(code): {"description": said[code], "content": problem} for code in sorted({401, 403, 429, *errors})
    }


def _get(summary: str, parameters: list[Any], answers: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "parameters": parameters, "responses": answers}}


def _push() -> dict[str, Any]:
    """The description of ``POST /feeds/{feed}/rows``."""
    return {
        "summary": "Push rows: JSON lines, a JSON array of objects, or InfluxDB's line protocol.",
        "description": (
            "A row is an object with the columns of the feed: its targets and inputs, the time, the key and, if the "
            "feed has one, the sequence. All rows of a request are accepted, or none; they are on the disk when the "
            "answer comes. A request may be sent again at any time: rows whose sequence, or else whose time, is not "
            "after the last one of their key are counted as repeated. With bad_rows=skip, rows that cannot be used "
            "are kept as dead letters, and the others are accepted."
        ),
        "parameters": [
            _FEED,
            _query("bad_rows", "Reject the request because of a bad row, or skip that row.", enum=["stop", "skip"]),
            _query("format", "influx: line protocol, whatever the content type.", enum=["influx", "json"]),
            _query("precision", "Unit of the times of line protocol.", enum=["ns", "us", "ms", "s"]),
        ],
        "requestBody": {
            "description": "An empty body is accepted, and has no rows.",
            "required": False,
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "array", "items": _TEXTS}},
                "text/plain": {"schema": {"type": "string"}},
            },
        },
        "responses": _answers(
            202, "How many rows were accepted, repeated and rejected.", 400, 404, 405, 408, 413, 422, 503, 507
        ),
    }


def _acknowledge() -> dict[str, Any]:
    """The description of ``POST /alarms/{id}/acknowledge``."""
    return {
        "summary": "Acknowledge an alarm.",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Of the alarm."}
        ],
        "requestBody": {
            "required": False,
            "content": {
                "application/json": {
                    "schema": {"type": "object", "properties": {"by": {"type": "string", "maxLength": 100}}}
                }
            },
        },
        "responses": _answers(200, "The alarm.", 400, 404, 408, 413, 422),
    }


def _login() -> dict[str, Any]:
    """The description of ``POST /login``."""
    return {
        "summary": "Exchange a token for the cookie of the page.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
                }
            },
        },
        "responses": _answers(200, "What the token allows.", 400, 408, 413, 422),
    }


def openapi(feeds: Iterable[str] = ()) -> dict[str, Any]:
    """The interface as an OpenAPI 3.1 document; with the names of feeds, it says which there are.

    Examples
    --------
    >>> sorted(openapi()["paths"])[:3]
    ['/about', '/alarms', '/alarms/{id}/acknowledge']
    """
    document = {
        "openapi": "3.1.0",
        "info": {"title": "momostream", "version": __version__, "description": "Rows in; forecasts and alarms out."},
        "paths": {
            "/feeds": _get("Feeds, their columns and counts.", [], _answers(200, "The feeds.")),
            "/feeds/{feed}/rows": {"post": _push()},
            **_feed_paths(),
            "/alarms": _get(
                "Alarms, open ones first.",
                [
                    _query("feed", "Only of this feed."), _MACHINE, _LIMIT,
                    _query("state", "Which.", enum=["all", "open", "ended", "unacknowledged"]),
                ],
                _answers(200, "The alarms.", 404, 422),
            ),
            "/alarms/{id}/acknowledge": {"post": _acknowledge()},
            "/healthz": _get("Whether the process answers.", [], _answers(200, "It does.")),
            "/readyz": _get("Whether all feeds run.", [], _answers(200, "They do.", 503)),
            "/metrics": _get("Counts for Prometheus.", [], _answers(200, "The counts.", media="text/plain")),
            "/about": _get("What the page needs to begin.", [], _answers(200, "Title and feeds.")),
            "/login": {"post": _login()},
        },
        "components": {
            "schemas": {
                "Problem": {
                    "type": "object", "required": ["error"],
                    "properties": {"error": {"type": "string"}, "field": {"type": "string"}, "rows": {"type": "array"}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }  # fmt: skip
    if names := list(feeds):
        _name_feeds(document["paths"], names)
    return document


def _name_feeds(paths: Any, names: list[str]) -> None:
    for methods in paths.values():
        for about in methods.values():
            about["parameters"] = [
                each | {"schema": {"type": "string", "enum": names}} if each["name"] == "feed" else each
                for each in about.get("parameters", [])
            ]


def _feed_paths() -> dict[str, Any]:
    """Paths of one feed, all for reading."""
    number = {"type": "number"}
    levels = _query("levels", "Probabilities of quantiles, separated by commas.")
    return {
        "/feeds/{feed}/machines": _get(
            "Machines: the most urgent first.",
            [_FEED, _OFFSET, _LIMIT, _query("search", "Part of the name."),
             _query("health", "Only in this state.", enum=["alarm", "watch", "silent", "learning", "ok"])],
            _answers(200, "The machines.", 404, 422),
        ),
        "/feeds/{feed}/machine": _get(
            "All about one machine.", [_FEED, _KEY, _MACHINE], _answers(200, "The machine.", 404, 422)
        ),
        "/feeds/{feed}/forecasts": _get(
            "Newest forecasts, with quantiles.", [_FEED, _KEY, _MACHINE, levels, _OFFSET, _LIMIT],
            _answers(200, "The forecasts.", 404, 422),
        ),
        "/feeds/{feed}/history": _get(
            "Newest rows of a machine: values, what was predicted for them, rolling scores.",
            [_FEED, _KEY, _MACHINE, _query("limit", "Rows.", type="integer", minimum=1, maximum=10**9)],
            _answers(200, "The rows.", 404, 422),
        ),
        "/feeds/{feed}/scores": _get(
            "Rolling scores.", [_FEED, _KEY, _MACHINE], _answers(200, "Scores by machine and target.", 404, 422)
        ),
        "/feeds/{feed}/risk": _get(
            "Probability that a target falls below or rises above a value, from joint samples of the forecast.",
            [_FEED, _KEY, _MACHINE, _query("target", "Column; the first target if it is left out."),
             _query("below", "The value.", **number), _query("above", "The value.", **number),
             _query("steps", "Steps that are looked at; all if left out.", type="integer", minimum=1),
             _query("sum", "all: of the sum over all machines.", enum=["all"])],
            _answers(200, "The probability, in all and by step.", 404, 409, 422),
        ),
    }  # fmt: skip


def docs_html() -> str:
    """The interface as a page without scripts."""
    document = openapi()
    parts = []
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            parts.append(f"<section><h2><b>{method.upper()}</b> {escape(path)}</h2><p>{escape(about['summary'])}</p>")
            if "description" in about:
                parts.append(f"<p>{escape(about['description'])}</p>")
            parts += _table("Parameters", [_parameter(each) for each in about.get("parameters", [])])
            answers = [(code, escape(answer["description"])) for code, answer in about["responses"].items()]
            parts += [*_table("Answers", answers), "</section>"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>momostream interface</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="static/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="static/docs.css"></head><body><main><h1>Interface</h1>'
        '<p><a href="openapi.json">openapi.json</a> describes the same for programs. <code>GET /events</code> is a '
        "stream of server-sent events for the page. <a href='./'>The page</a>.</p>"
        f"{''.join(parts)}</main></body></html>"
    )


def _parameter(parameter: dict[str, Any]) -> tuple[str, str]:
    choices = ", ".join(map(str, parameter["schema"].get("enum", [])))
    words = parameter["description"] + (f" One of {choices}." if choices else "")
    return parameter["name"], escape(words)


def _table(caption: str, lines: list[tuple[str, str]]) -> list[str]:
    if not lines:
        return []
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{words}</td></tr>" for name, words in lines)
    return [f"<table><caption>{caption}</caption>{cells}</table>"]
