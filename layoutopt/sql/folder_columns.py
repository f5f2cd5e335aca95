"""Columns that only the names of Hive-style folders tell of (``day=2026-11-24/``): their values, and types guessed."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from layoutopt.errors import SourceError
from layoutopt.model.schema import Column
from layoutopt.model.types import whole_type

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_FORMS: Final = tuple((type, re.compile(form)) for type, form in (
    ("int", r"-?[0-9]{1,99}"),  # or bigint
    ("double", r"-?[0-9]{0,99}\.[0-9]{1,99}"),
    ("date", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
))  # fmt: skip
_OTHER_FORMS: Final = re.compile(
    r"\s*[+-]?(NaN|Infinity|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?\s*"
    r"|[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"|-?([0-9]{5,}|0000|(?<=-)[0-9]{4})-[0-9]{2}-[0-9]{2}( [0-9:.]*)?|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9:.]*"
)
"""Of what Spark may take for decimals, other doubles, times, or days and moments."""
_COMMON: Final = {
    frozenset({"int", "bigint"}): "bigint", frozenset({"int", "double"}): "double",
    frozenset({"date", "timestamp"}): "timestamp",
}  # fmt: skip
"""Types of which Spark makes one; values of any others are texts together, as those of bigint and double are."""


def values_in_folders(path: str) -> dict[str, str | None]:
    """The columns whose values a path's folders say, None for NULL.

    >>> values_in_folders("/day=2024-01-01/city=a%2Fb/f.parquet")
    {'day': '2024-01-01', 'city': 'a/b'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    said = [(unquote(name), unquote(value)) for name, _, value in parts]
    return {name: None if value == _NULL else value for name, value in said if name}


def is_shown(name: str) -> bool:
    """Whether Spark looks at a file or a folder of a name when it lists a folder.

    >>> is_shown("a.parquet"), is_shown("_SUCCESS"), is_shown("_day=1"), is_shown(".a.parquet.crc")
    (True, False, True, False)
    """
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def folder_columns(values: Iterable[Mapping[str, str | None]]) -> tuple[Column, ...]:
    """The columns that folders say, each of the type that Spark guesses.

    Args:
        values: of each file, as :func:`values_in_folders` gives them.

    Raises:
        SourceError: a value may be of a type that is not followed here, so that two of Spark's would be one.

    >>> folder_columns([{"n": "01", "day": "2024-01-01"}, {"n": None, "day": "2024-01-02"}])
    (Column(name='n', type='int', nullable=True), Column(name='day', type='date', nullable=True))
    """
    texts: dict[str, set[str]] = {}
    for said in values:
        for name, value in said.items():
            texts.setdefault(name, set()).update([] if value is None else [value])
    return tuple(Column(name, _guessed(name, found)) for name, found in texts.items())


def _guessed(name: str, texts: set[str]) -> str:
    types = {_type_of(text): text for text in sorted(texts)}
    if "string" in types or not types:
        return "string"
    if None in types:
        raise SourceError(
            f"the folder '{name}={types[None]}' has a value that Spark may take for another number or time than is "
            "read here; store the column in the files"
        )
    found = frozenset(type for type in types if type is not None)
    return next(iter(found)) if len(found) == 1 else _COMMON.get(found, "string")


def _type_of(text: str) -> str | None:
    """The type of one value; None where Spark's may be another one than those that are followed."""
    latin = "".join(str(unicodedata.decimal(character, character)) for character in text)
    if latin != text:  # Java reads digits of any script
        return "string" if _type_of(latin) == "string" else None
    form = next((type for type, form in _FORMS if form.fullmatch(text)), None)
    if form == "int":
        return whole_type(int(text))  # beyond, decimals
    if form in ("date", "timestamp"):
        if text.startswith("0000"):  # no year of Python's
            return None
        try:
            dt.datetime.fromisoformat(text)
        except ValueError:
            return "string"
    return form or (None if _OTHER_FORMS.fullmatch(text) else "string")
