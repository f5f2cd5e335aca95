"""Names of Spark's types, and quoted names of columns.

Type names are inserted into SQL unquoted, so those from files are validated.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# The types of whole numbers, narrowest first, with their width in bits.
INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
# The type of values of any form, stored in files as ``struct<value:binary,metadata:binary>``.
VARIANT: Final = "variant"
_DEEPEST: Final = 50
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)
# `decimal(15,2)`, `interval day to second`, `string collate UTF8_LCASE`: words, and numbers in brackets.
_SIMPLE: Final = re.compile(r"[A-Za-z]\w{0,63}(?: \w{1,63}){0,5}(?: ?\( ?\d{1,9}(?: ?, ?\d{1,9})? ?\))?", re.ASCII)
_FIELD: Final = re.compile(r"[^<>,:()'\"`;\\/*\x00-\x1f\x7f]{1,255}:")
_PART: Final = re.compile(r"(?:array|map|struct)<|[<>,]|[^<>,(]+(?:\([^)]*\))?|.", re.DOTALL)


def whole_type(value: int) -> str | None:
    """Return Spark's type of an integer literal; None where no integer type holds it.

    >>> whole_type(-(2**31)), whole_type(2**31), whole_type(2**63)
    ('int', 'bigint', None)
    """
    fits = (name for name in ("int", "bigint") if -(1 << INTEGER_BITS[name] - 1) <= value < 1 << INTEGER_BITS[name] - 1)
    return next(fits, None)


def quote_name(name: str) -> str:
    """Return a name in backticks, as Spark's SQL takes any name of a column or table.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def unquote_name(name: str) -> str:
    """Return a name without backticks, if it has any.

    >>> unquote_name("`a``b`"), unquote_name("a`b")
    ('a`b', 'a`b')
    """
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name


def double_quote_name(name: str) -> str:
    """Return a name in double quotes, as DuckDB's SQL takes any name of a column.

    >>> double_quote_name('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def decimal_digits(type: str) -> tuple[int, int] | None:
    """Return precision and scale of ``decimal(p,s)``; None for other types.

    >>> decimal_digits("decimal(15,2)"), decimal_digits("int")
    ((15, 2), None)
    """
    match = _DECIMAL.fullmatch(type)
    return (int(match[1]), int(match[2])) if match else None


def type_name(text: str) -> str:
    """Return the text if it is a type name and nothing else, with fields that Spark's SQL reads, else raise ValueError.

    >>> type_name("map<string,array<struct<a:int,b c:decimal(15,2)>>>")
    'map<string,array<struct<a:int,b c:decimal(15,2)>>>'
    >>> type_name("int) AS a, (SELECT 1")
    Traceback (most recent call last):
      ...
    ValueError: 'int) AS a, (SELECT 1' is the name of no type
    """
    if not is_type_name(text):
        raise ValueError(f"{text[:80]!r} is the name of no type")
    return text


@lru_cache(maxsize=4096)
def type_sql(text: str) -> str:
    """Return a type name for any Spark session, with quoted field names.

    The type of `timestamp` depends on a session setting, so it becomes `timestamp_ltz`.

    >>> type_sql("struct<a.b:int,c:map<string,decimal(15,2)>>"), type_sql("array<timestamp>")
    ('struct<`a.b`:int,`c`:map<string,decimal(15,2)>>', 'array<timestamp_ltz>')
    """
    written, outer, end = [], [""], 0
    starts_field = False
    while end < len(text):
        field = _FIELD.match(text, end) if starts_field else None
        if field is not None:
            written.append(f"`{field[0][:-1]}`:")
            end, starts_field = field.end(), False
            continue
        part = _PART.match(text, end)
        assert part is not None, "any character is a part"
        written.append("timestamp_ltz" if part[0] == "timestamp" else part[0])
        end = part.end()
        if part[0].endswith("<"):
            outer.append(part[0])
        elif part[0] == ">":
            outer.pop()
        starts_field = part[0] in ("struct<", ",") and outer[-1:] == ["struct<"]
    return "".join(written)


def leaf_paths(name: str, type: str) -> list[str]:
    """Return the Parquet leaf columns of a column, as dotted paths.

    >>> leaf_paths("a", "struct<b.c:int,d:map<string,array<int>>>")
    ['a.b.c', 'a.d.key_value.key', 'a.d.key_value.value.list.element']
    """
    kind, parts = nested_parts(type)
    if type == VARIANT:
        return [f"{name}.value", f"{name}.metadata"]
    if not parts:
        return [name]
    if kind == "array":
        children = [("list.element", parts[0])]
    elif kind == "map":
        children = list(zip(("key_value.key", "key_value.value"), parts, strict=True))
    else:
        children = struct_fields(type)
    return [path for field, child_type in children for path in leaf_paths(f"{name}.{field}", child_type)]


def nested_parts(type: str) -> tuple[str, list[str]]:
    """Return a type's outer name, and the parts within its brackets, if any.

    >>> nested_parts("map<string,array<int>>"), nested_parts("decimal(5,2)")
    (('map', ['string', 'array<int>']), ('decimal(5,2)', []))
    """
    kind, bracket, inner = type.partition("<")
    return kind, split_parts(inner.removesuffix(">")) if bracket else []


def struct_fields(type: str) -> list[tuple[str, str]]:
    """Return the names and types of a struct's fields; none for other types.

    >>> struct_fields("struct<a:int,b:map<string,int>>"), struct_fields("array<int>")
    ([('a', 'int'), ('b', 'map<string,int>')], [])
    """
    kind, parts = nested_parts(type)
    fields = (part.partition(":") for part in parts)
    return [(name, field_type) for name, _, field_type in fields] if kind == "struct" else []


def split_parts(text: str) -> list[str]:
    """Split a text at commas outside of any bracket."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@lru_cache(maxsize=4096)
def is_type_name(text: str) -> bool:
    """Return whether :func:`type_name` accepts the text."""
    return "--" not in text and _find_type_end(text, 0, 0) == len(text)


def _find_type_end(text: str, start: int, depth: int) -> int | None:
    """Return the end of the type at ``start``; None where there is none."""
    for outer in ("array<", "map<", "struct<"):
        if text.startswith(outer, start):
            return _find_parts_end(text, start + len(outer), outer, depth + 1)
    simple = _SIMPLE.match(text, start)
    return simple.end() if simple else None


def _find_parts_end(text: str, start: int, outer: str, depth: int) -> int | None:
    """Return the end of the brackets of a type whose first part begins at ``start``."""
    if depth > _DEEPEST:
        return None
    count, end = 0, start
    while not (outer == "struct<" and count == 0 and text.startswith(">", end)):
        if outer == "struct<":
            field = _FIELD.match(text, end)
            if field is None:
                return None
            end = field.end()
        after = _find_type_end(text, end, depth)
        if after is None:
            return None
        count, end = count + 1, after
        if not text.startswith(",", end):
            break
        end += 1
    counts = {"array<": (1,), "map<": (2,)}.get(outer, (count,))
    return end + 1 if count in counts and text.startswith(">", end) else None


_PADDED: Final = re.compile(r"(?<!var)char\(", re.IGNORECASE)


def is_padded(declared: str) -> bool:
    """Return whether a declared type is or contains a CHAR, which Spark pads with blanks.

    >>> is_padded("char(5)"), is_padded("array<CHAR(2)>"), is_padded("varchar(5)")
    (True, True, False)
    """
    return _PADDED.search(declared) is not None
