"""The HTML report: a public door to `momostream.show.report`."""

from __future__ import annotations

from momostream.show.report import write_report

__all__ = ["write_report"]
