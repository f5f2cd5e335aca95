"""What disks, copies and people do to files: each corruption takes bytes, or a JSON value, and gives another."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Corruption = Callable[[bytes, random.Random], bytes]


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def overwrite(data: bytes, rng: random.Random) -> bytes:
    start, stop = _range(data, rng, 64)
    return data[:start] + rng.randbytes(stop - start) + data[stop:]


def zero(data: bytes, rng: random.Random) -> bytes:
    start, stop = _range(data, rng, 512)
    return data[:start] + bytes(stop - start) + data[stop:]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def lose(data: bytes, rng: random.Random) -> bytes:
    start, stop = _range(data, rng, 64)
    return data[:start] + data[stop:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    start, stop = _range(data, rng, 64)
    return data[:stop] + data[start:stop] + data[stop:]


def insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.randbytes(rng.randint(1, 16)) + data[place:]


def swap(data: bytes, rng: random.Random) -> bytes:
    """Two stretches of equal length that changed places."""
    length = rng.randint(1, max(1, len(data) // 4))
    first = rng.randrange(len(data) - 2 * length + 1)
    second = rng.randint(first + length, len(data) - length)
    a, b = data[first : first + length], data[second : second + length]
    return data[:first] + b + data[first + length : second] + a + data[second + length :]


def _range(data: bytes, rng: random.Random, most: int) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.randint(1, most))


CORRUPTIONS: tuple[Corruption, ...] = (flip_bit, flip_bit, overwrite, zero, cut, lose, repeat, insert, swap)


def corrupted(data: bytes, rng: random.Random) -> bytes:
    """The bytes after some corruption that changed them."""
    while True:
        changed = rng.choice(CORRUPTIONS)(data, rng)
        if changed != data:
            return changed


HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 1.5, float("nan"), "", "..", "../../outside", "/etc/passwd", "file:///etc/passwd",
    "s3://other/bucket", "a\nb", "`; DROP TABLE t; --", "' OR 1 = 1 --", "x" * 5000, "\ud800", "\x00", "~root",
    *json.loads('[[], {}, [[]], {"format": 1}, [1, "a", null]]'),
)  # fmt: skip
"""Values that no document of ours has where they will stand."""


def with_hostile_value(value: Any, rng: random.Random) -> Any:
    """A JSON value in which one node, anywhere, became another: a hostile one, one from elsewhere, or was lost."""
    changed = json.loads(json.dumps(value))
    parent, key = rng.choice(list(_places(changed)))
    action = rng.random()
    if action < 0.15:
        del parent[key]
    elif action < 0.45:
        other, place = rng.choice(list(_places(changed)))
        parent[key] = json.loads(json.dumps(other[place]))
    elif action < 0.55 and isinstance(parent, dict):
        parent[str(rng.choice(HOSTILE))] = parent.pop(key)
    else:
        parent[key] = rng.choice(HOSTILE)
    return changed


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def hostile_like(value: Any, rng: random.Random) -> Any:
    """A hostile value of the same type, since a Parquet column has but one."""
    if isinstance(value, int):
        return rng.choice([None, -1, 0, 1, 7, 120, value + 1])
    if isinstance(value, list):
        return rng.choice([None, [], [-1, -1], [0]])
    if isinstance(value, dict):
        name = rng.choice(list(value))
        return {**value, name: hostile_like(value[name], rng)}
    return rng.choice([None, *(text for text in HOSTILE if isinstance(text, str) and text.isascii())])


def shrunk(statistics: pa.StructArray, column: int) -> pa.StructArray:
    """Statistics whose first block says that its largest value of a column is its smallest."""
    names = [statistics.type.field(i).name for i in range(statistics.type.num_fields)]
    children = [statistics.field(i) for i in range(len(names))]
    child = children[column]
    members = {child.type.field(i).name: child.field(i) for i in range(child.type.num_fields)}
    low, high = members["min"].to_pylist(), members["max"].to_pylist()
    members["max"] = pa.array([low[0], *high[1:]], members["max"].type)
    children[column] = pa.StructArray.from_arrays(list(members.values()), names=list(members))
    return pa.StructArray.from_arrays(children, names=names)
