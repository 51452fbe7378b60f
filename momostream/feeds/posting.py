"""HTTP requests that carry secrets or signatures."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any

__all__ = ["make_opener"]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An address that sends elsewhere is an error: what is signed or secret for one host is not for another."""

    def redirect_request(self, *args: Any) -> None:
        return None


def make_opener(context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """What opens requests, without redirects; ``context`` is TLS, by default that of the system."""
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
