"""Plain names in place of those that a parser of SQL or an engine might read in more than one way.

The parser of whole texts reads names once more where it qualifies columns, so that a quote or a dot in one is lost, and
DuckDB tells ``Ä`` from ``ä`` where Spark does not. So such names stand under others while a text is with them: of
letters, digits and underscores, and the same wherever the name occurs, in any case.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from typing import Final

from sqlglot import exp

from layoutopt.model.schema import Schema

_PREFIX: Final = "_layoutopt_name_"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def plain_name(name: str) -> str:
    """The name itself where every reader takes it as it is, else its stand-in.

    >>> plain_name("Year"), plain_name("a.b") == plain_name("A.b")
    ('Year', True)
    """
    if _PLAIN.fullmatch(name):
        return name
    return _PREFIX + sha256(name.lower().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_stand_in(name: str) -> bool:
    """Whether a name was made by :func:`plain_name`."""
    return name.startswith(_PREFIX)


def with_plain_names(schema: Schema) -> Schema:
    """The schema as texts with plain names call it."""
    return Schema(tuple(replace(column, name=plain_name(column.name)) for column in schema.columns))


def name_plainly(tree: exp.Expr) -> None:
    """Put plain names in a tree, in place; their places in the text stay known."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", plain_name(identifier.this))
