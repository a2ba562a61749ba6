"""Cuts JSON text into its parts without rebuilding any of it, so that answers can be compared byte for byte.

Knows JSON only. Used by session.py and interop.py.
"""

import json
import re

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()


def members(text: str) -> list[tuple[str, str]]:
    """The members of an object in their order, each value as the text it was written with."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError(f"not an object: {text[:60]!r}")
    found, at = [], _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("no colon after a key")
        start = _skip(text, at + 1)
        _, end = _DECODER.raw_decode(text, start)
        found.append((key, text[start:end]))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def items(text: str) -> list[str]:
    """The items of an array, each as the text it was written with."""
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError(f"not an array: {text[:60]!r}")
    found, at = [], _skip(text, at + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def without(pairs: list[tuple[str, str]], *keys: str) -> list[tuple[str, str]]:
    """The pairs whose key is none of `keys`."""
    return [pair for pair in pairs if pair[0] not in keys]


def self_test() -> None:
    """Raises when a difference that matters would go unseen."""
    text = ' {"a" : 1.0 , "b":{"c":[1, 2]},"\\u0061":"\\u0061"} '
    assert members(text) == [("a", "1.0"), ("b", '{"c":[1, 2]}'), ("a", '"\\u0061"')], members(text)
    assert items('[1, "x" ,{"y": []}]') == ["1", '"x"', '{"y": []}']
    assert items("[]") == [] and members("{}") == []
    for one, other in [
        ('{"a":1.0}', '{"a":1}'),
        ('{"a":"é"}', '{"a":"\\u00e9"}'),
        ('{"a":[1,2]}', '{"a":[1, 2]}'),
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
    ]:
        assert members(one) != members(other), (one, other)
