"""A griffe extension: parameters are shown with the types and defaults of the signature.

numpydoc lets names share a line (``window, memory_budget``), and griffe then shows the type and default of the first
for all. Of a set of choices (``{"csv", "jsonl"}, optional``) it takes the first for the default.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^( *)(?:Parameters|Attributes)\n\1-+\n(?:.*\n)*?(?=\1\w[\w ]*\n\1-+\n|\Z)", re.MULTILINE)
_CHOICES = re.compile(r"^( *\w+) : \{.*$", re.MULTILINE)
# A header with two or more names, and the more deeply indented lines below it.
_JOINED = re.compile(r"^( *)(\w+(?:, \w+)+)((?: *:[^\n]*)?\n(?:(?:\1 +[^\n]*)?\n)*(?:\1 +[^\n]*)?)", re.MULTILINE)


def as_signed(text: str) -> str:
    """The same docstring: a line for each parameter, and no choices that could be taken for defaults."""

    def parted(match: re.Match[str]) -> str:
        indent, names, rest = match.groups()
        # A blank line ends the last entry of a section.
        body, end = rest.rstrip("\n"), rest[len(rest.rstrip("\n")) :]
        return "\n".join(f"{indent}{name}{body}" for name in names.split(", ")) + end

    return _SECTION.sub(lambda section: _JOINED.sub(parted, _CHOICES.sub(r"\1", section[0])), text)


class AsSigned(griffe.Extension):
    """Rewrites docstrings before they are read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every object, before its docstring is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = as_signed(obj.docstring.value)
