"""Keys of models: strings, integers, and tuples of them; and their text in a store."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from momostream.estimators.vocabulary import Vocabulary
from momostream.storage.container import FileFormatError

__all__ = ["Key", "is_side_key", "key_from_text", "key_text", "plain_key", "side_key"]

#: A string, an integer, or a tuple of them.
Key: TypeAlias = str | int | tuple[Any, ...]
# No sensor is called so.
_SIDE = "\x1fmonitor"


def side_key(key: Key) -> Key:
    """The key of the monitor beside the model of a key.

    Examples
    --------
    >>> is_side_key(side_key("T01")), is_side_key("T01")
    (True, False)
    """
    return (_SIDE, key)


def is_side_key(key: Any) -> bool:
    """Whether `side_key` made this key."""
    return type(key) is tuple and len(key) == 2 and key[0] == _SIDE


def plain_key(key: Any) -> Key:
    """Return a key without numpy.

    Raises
    ------
    TypeError
        For keys other than strings, integers, and tuples of them.

    Examples
    --------
    >>> plain_key(("farm", 3))
    ('farm', 3)
    >>> plain_key(3.5)
    Traceback (most recent call last):
    TypeError: invalid key 3.5: expected a string, an integer or a tuple of them, not a float
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    (plain,) = Vocabulary([key]).keys
    if type(plain) is tuple:
        return tuple(map(plain_key, plain))
    if isinstance(plain, str | int) and type(plain) in {str, int}:
        return plain
    raise TypeError(f"invalid key {key!r}: expected a string, an integer or a tuple of them, not a {kind.__name__}")


def key_text(key: Any) -> str:
    """The text of a key in a store."""
    (state,) = Vocabulary([plain_key(key)]).state()
    return json.dumps(state)


def key_from_text(text: str) -> Key:
    """The key of a text in a store."""
    try:
        (key,) = Vocabulary.from_state([json.loads(text)]).keys
        return plain_key(key)
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"the key {text!r} cannot be read") from error
