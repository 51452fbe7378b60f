"""The command line: `app` gathers the commands, one file each; `options` has their options."""

from __future__ import annotations
