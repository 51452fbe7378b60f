"""Topics with names in them: ``plant/{turbine}/sensors/{column}``."""

from __future__ import annotations

import re

__all__ = ["COLUMN", "TopicPattern"]

#: Name of the level that says of which column a message is the value.
COLUMN = "column"
_NAMED = re.compile(r"\{([^{}/]+)\}")


class TopicPattern:
    """A topic filter whose levels may be names in braces: what stands there in a topic is a field of its messages.

    Parameters
    ----------
    pattern
        Levels, names in braces, and the wildcards ``+`` and ``#`` of MQTT.

    Attributes
    ----------
    filter : str
        The pattern as a filter of MQTT.
    names : tuple of str
        The names in it.

    Examples
    --------
    >>> pattern = TopicPattern("plant/{turbine}/+/{column}")
    >>> pattern.filter, pattern.fields("plant/T01/sensors/power")
    ('plant/+/+/+', {'turbine': 'T01', 'column': 'power'})
    """

    def __init__(self, pattern: str) -> None:
        levels = pattern.split("/")
        found = [_NAMED.fullmatch(level) for level in levels]
        self._names = {number: name[1] for number, name in enumerate(found) if name is not None}
        self.names = tuple(self._names.values())
        self.filter = "/".join("+" if name is not None else level for level, name in zip(levels, found, strict=True))
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise ValueError(f"{pattern}: {{{twice[0]}}} occurs twice")
        if re.search(r"[{}]", self.filter):
            raise ValueError(f"{pattern}: a name in braces must be a whole level, as in farm/{{turbine}}/rows")

    @property
    def has_column(self) -> bool:
        """Whether each message is the value of one column."""
        return COLUMN in self.names

    def fields(self, topic: str) -> dict[str, str]:
        """The fields that a topic gives."""
        levels = topic.split("/")
        return {name: levels[number] for number, name in self._names.items()}
