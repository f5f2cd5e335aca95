"""The queries of a stream as joins of TPC-H's own tables: what they are before all is denormalised onto lineitem.

A query joins the tables whose columns it reads, and those between them; one that reads no line item and no order joins
dimensions alone, as the thesis's do (4.7.5: 40 of 100). It then has each row of a dimension once, and those without a
line item too; :func:`join_text` with ``lines`` joins lineitem to it all the same, and so has exactly the answer of the
denormalised table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

RAW: Final[Mapping[str, str]] = MappingProxyType(
    {
        "l": "lineitem", "o": "orders", "c": "customer", "p": "part", "ps": "partsupp", "s": "supplier",
        "cn": "nation", "cr": "region", "sn": "nation", "sr": "region",
    }
)  # fmt: skip
"""The table behind each alias; an alias is what the denormalised columns of the table begin with."""
_JOINED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "l": {},
        "o": {"l": "o.o_orderkey = l.l_orderkey"},
        "c": {"o": "c.c_custkey = o.o_custkey"},
        "p": {"l": "p.p_partkey = l.l_partkey", "ps": "p.p_partkey = ps.ps_partkey"},
        "ps": {"l": "ps.ps_partkey = l.l_partkey AND ps.ps_suppkey = l.l_suppkey"},
        "s": {"l": "s.s_suppkey = l.l_suppkey", "ps": "s.s_suppkey = ps.ps_suppkey"},
        "cn": {"c": "cn.n_nationkey = c.c_nationkey"},
        "cr": {"cn": "cr.r_regionkey = cn.n_regionkey"},
        "sn": {"s": "sn.n_nationkey = s.s_nationkey"},
        "sr": {"sn": "sr.r_regionkey = sn.n_regionkey"},
    }
)
"""What each table may be joined to, and on what."""
_FIRST: Final = ("p", "s", "c", "ps", "o", "l")
"""From which table all may be reached, the smallest first."""
_COLUMN: Final = re.compile(r"'[^']*'|\b(?P<alias>cn|cr|sn|sr|ps|[locps])_(?P<name>[a-z]+)\b")


def join_text(sql: str, *, lines: bool = False) -> str:
    """A query of the denormalised table as a join.

    Args:
        sql: as :mod:`layoutopt.bench.tpch.queries` draws them.
        lines: begin with lineitem even if no column of it is read.

    >>> join_text("SELECT s_name, s_address FROM tpch WHERE sn_name = 'INDIA'")
    "SELECT s.s_name AS s_name, s.s_address AS s_address FROM supplier s JOIN nation sn ON \
sn.n_nationkey = s.s_nationkey WHERE sn.n_name = 'INDIA'"
    """
    select, _, filter = sql.removeprefix("SELECT ").partition(" FROM tpch WHERE ")
    columns = ", ".join(f"{_qualified(name)} AS {name}" for name in select.split(", "))
    tables = " ".join(_from_items(_aliases(sql), lines))
    return f"SELECT {columns} FROM {tables} WHERE {_qualified(filter)}"


def of_dimensions(sql: str) -> bool:
    """Whether a query of the denormalised table joins neither line items nor orders."""
    return _from_items(_aliases(sql), lines=False)[0].split()[0] not in ("lineitem", "orders")


def _aliases(sql: str) -> set[str]:
    return {found["alias"] for found in _COLUMN.finditer(sql) if found["alias"]}


def _qualified(text: str) -> str:
    """The text with each column as its table calls it, behind the table's alias; what is quoted stays."""

    def own(found: re.Match[str]) -> str:
        alias, name = found["alias"], found["name"]
        return f"{alias}.{RAW[alias][0] if len(alias) == 2 and alias != 'ps' else alias}_{name}" if alias else found[0]

    return _COLUMN.sub(own, text)


def _from_items(aliases: set[str], lines: bool) -> list[str]:
    """The tables to be joined, each after one that it is joined to."""
    ways = [(first, [_way(alias, first) for alias in sorted(aliases)]) for first in (("l",) if lines else _FIRST)]
    first, found = next((first, ways) for first, ways in ways if all(ways))
    joined = [f"{RAW[first]} {first}"]
    for way in found:
        for alias, other in zip(way[1:], way, strict=False):
            item = f"JOIN {RAW[alias]} {alias} ON {_JOINED[alias][other]}"
            joined += [item] if item not in joined else []
    return joined


def _way(alias: str, first: str) -> Sequence[str]:
    """The tables from the first one to this one, both included; none where the first does not lead there."""
    if alias == first:
        return (first,)
    others = _JOINED[alias]
    other = first if first in others else next(iter(others), None)
    before = () if other is None else _way(other, first)
    return (*before, alias) if before else ()
