"""The files of the page, read once: no path of a request reaches the file system."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["PageFile", "page_files"]

_PAGE = Path(__file__).parent / "page"
_KINDS = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", "": "text/plain; charset=utf-8",
}  # fmt: skip


@dataclass(frozen=True)
class PageFile:
    """A file as it is sent: plain, compressed, its type, and a tag that changes with it."""

    plain: bytes
    compressed: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, path: Path) -> PageFile:
        """Read a file."""
        plain = path.read_bytes()
        tag = f'"{hashlib.sha256(plain).hexdigest()[:16]}"'
        return cls(plain, gzip.compress(plain, 9, mtime=0), _KINDS[path.suffix], tag)

    def answer(self, request: Request) -> Response:
        """The file, or that the browser has it already."""
        headers = {"etag": self.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.compressed, headers=headers | {"content-encoding": "gzip"}, media_type=self.kind)
        return Response(self.plain, headers=headers, media_type=self.kind)


def page_files() -> dict[str, PageFile]:
    """All files of the page by their names.

    Examples
    --------
    >>> {"index.html", "app.js", "uplot/uplot.js"} <= set(page_files())
    True
    """
    return {path.relative_to(_PAGE).as_posix(): PageFile.of(path) for path in _PAGE.rglob("*") if path.is_file()}
