"""Reads what a request asks for, with limits; a wrong value gets an answer that names the field."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

__all__ = ["ApiError", "choice", "number", "numbers", "read_body", "whole"]


class ApiError(Exception):
    """An answer that is an error: status, message, and the field that is wrong."""

    def __init__(self, status: int, message: str, field: str | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status, self.field, self.more = status, field, more

    def plain(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": str(self), **({} if self.field is None else {"field": self.field}), **self.more}


def whole(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or not least <= int(text) <= most:
        raise ApiError(422, f"expected a whole number from {least} to {most}", name)
    return int(text)


def number(query: Mapping[str, str], name: str) -> float | None:
    """A number of the query; None if it is not there."""
    text = query.get(name)
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ApiError(422, "expected a number", name)
    return found


def numbers(query: Mapping[str, str], name: str, default: str, least: float, most: float, n: int) -> list[float]:
    """Numbers of the query, separated by commas, each between two others."""
    parts = [part for part in query.get(name, default).split(",") if part]
    try:
        found = [float(part) for part in parts]
    except ValueError:
        found = [math.nan]
    if len(found) > n or not all(least < each < most for each in found):
        raise ApiError(422, f"expected at most {n} numbers between {least:g} and {most:g}, separated by commas", name)
    return found


def choice(query: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of some words."""
    text = query.get(name, default)
    if text not in choices:
        raise ApiError(422, f"expected one of {', '.join(filter(None, choices))}", name)
    return text


async def read_body(request: Request, most: int, timeout: float) -> bytes:
    """The body of a request, if it is not too large and comes in time."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > most:
        raise ApiError(413, f"the body has more than {most:,} bytes: send less at once")
    parts, size = [], 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise ApiError(413, f"the body has more than {most:,} bytes: send less at once")
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {timeout:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "the client has gone") from None
    return b"".join(parts)
