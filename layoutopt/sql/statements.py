"""What other engines are told so that they keep a table's rows in an order of columns, each in its own SQL.

The forms are those of the engines' manuals: Delta Lake 3.3 and Databricks (OPTIMIZE, CLUSTER BY), Iceberg's procedures
for Spark, Redshift's sort keys, Snowflake's and BigQuery's clustering, DuckLake's sorted tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.sql.dialect import dialect_named

SORT: Final = "sort"
ZORDER: Final = "zorder"
HILBERT: Final = "hilbert"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FOLDS_UP: Final = "snowflake"
_FLOATS: Final = ("float", "double")
_COPY: Final = "_sorted"


@dataclass(frozen=True)
class OrderForm:
    """How an engine is told of one order of rows.

    Attributes:
        text: the statements, with ``{table}``, ``{copy}`` (a new table), ``{columns}``, and ``{named}``, the table as
            it stands inside a text in single quotes, as ``{listed}`` are the columns.
        most_columns: so many columns it takes; None for any number.
        takes_floats: whether ``float`` and ``double`` columns may be among them.
        takes_partitions: whether the table may have partitions.
    """

    text: str
    most_columns: int | None = None
    takes_floats: bool = True
    takes_partitions: bool = True


@dataclass(frozen=True)
class Engine:
    """An engine that can keep rows in an order.

    Attributes:
        dialect: how sqlglot calls its SQL.
        forms: by order, ``sort``, ``zorder`` or ``hilbert``.
        source: the format of the tables that it keeps itself, as sources are named; None where it reads files alone or
            has tables of its own.
    """

    dialect: str
    forms: Mapping[str, OrderForm]
    source: str | None = None


_OF_DELTA: Final[Mapping[str, OrderForm]] = MappingProxyType(
    {
        ZORDER: OrderForm("OPTIMIZE {table} ZORDER BY ({columns})"),
        HILBERT: OrderForm(
            "ALTER TABLE {table} CLUSTER BY ({columns}); OPTIMIZE {table} FULL", 4, takes_partitions=False
        ),
    }
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        "spark-delta": Engine(
            "spark",
            _OF_DELTA,
            "delta",
        ),
        "databricks": Engine(
            "databricks",
            _OF_DELTA,
            "delta",
        ),
        "iceberg": Engine(
            "spark",
            {
                SORT: OrderForm(
                    "ALTER TABLE {table} WRITE ORDERED BY {columns}; "
                    "CALL system.rewrite_data_files(table => '{named}', strategy => 'sort', "
                    "options => map('rewrite-all', 'true'))"
                ),
                ZORDER: OrderForm(
                    "CALL system.rewrite_data_files(table => '{named}', strategy => 'sort', "
                    "sort_order => 'zorder({listed})', options => map('rewrite-all', 'true'))"
                ),
            },
            "iceberg",
        ),
        "spark": Engine(
            "spark",
            {SORT: OrderForm("CREATE TABLE {copy} USING parquet AS SELECT * FROM {table} ORDER BY {columns}")},
        ),
        "redshift": Engine(
            "redshift",
            {
                SORT: OrderForm("CREATE TABLE {copy} COMPOUND SORTKEY ({columns}) AS SELECT * FROM {table}", 400),
                ZORDER: OrderForm("CREATE TABLE {copy} INTERLEAVED SORTKEY ({columns}) AS SELECT * FROM {table}", 8),
            },
        ),
        "snowflake": Engine("snowflake", {SORT: OrderForm("ALTER TABLE {table} CLUSTER BY ({columns})")}),
        "bigquery": Engine(
            "bigquery",
            {SORT: OrderForm("CREATE TABLE {copy} CLUSTER BY {columns} AS SELECT * FROM {table}", 4, False)},
        ),
        "ducklake": Engine("duckdb", {SORT: OrderForm("ALTER TABLE {table} SET SORTED BY ({columns})")}),
    }
)
"""The engines, by the names that the command line takes."""


def engines_for(format: str | None, system: str | None) -> tuple[str, ...]:
    """The engines that suit a table: of its own format, else the one whose history its log is, else all.

    Args:
        format: of a source that is a table of another format, ``delta`` or ``iceberg``; None for files of Parquet.
        system: whose history the log is, None where nobody said.

    >>> engines_for("iceberg", None), engines_for(None, "snowflake")
    (('iceberg',), ('snowflake',))
    """
    own = (name for name, engine in ENGINES.items() if format is not None and engine.source == format)
    whose = (name for name in ENGINES if name == system)
    return tuple(dict.fromkeys((*own, *whose))) or tuple(ENGINES)


def order_statement(
    engine: str, order: str, table: str, columns: Sequence[str], types: Sequence[str], *, partitioned: bool = False
) -> str | None:
    """What to tell an engine so that it keeps a table's rows in an order; None where it has no way to.

    Args:
        engine: one of :data:`ENGINES`.
        order: ``sort``, ``zorder`` or ``hilbert``.
        table: its name in the log, with or without qualifiers.
        columns: to order by, the first one first.
        types: Spark's, of each column.
        partitioned: whether the table has partitions.

    >>> order_statement("ducklake", "sort", "events", ["day", "user id"], ["date", "string"])
    'ALTER TABLE events SET SORTED BY (day, "user id")'
    >>> order_statement("bigquery", "sort", "events", ["price"], ["double"]) is None
    True
    """
    known = ENGINES[engine]
    form = known.forms.get(order)
    if form is None or not columns or (form.most_columns is not None and len(columns) > form.most_columns):
        return None
    if partitioned > form.takes_partitions or (not form.takes_floats and not set(_FLOATS).isdisjoint(types)):
        return None
    parts = table.split(".")
    named = ".".join(_identifier(part, known.dialect) for part in parts)
    copy = ".".join(_identifier(part, known.dialect) for part in (*parts[:-1], parts[-1] + _COPY))
    listed = ", ".join(_identifier(name, known.dialect) for name in columns)
    return form.text.format(table=named, copy=copy, columns=listed, named=_in_quotes(named), listed=_in_quotes(listed))


def _identifier(name: str, dialect: str) -> str:
    """A name as the engine reads it, quoted where it has to be.

    Snowflake takes a name without quotes for one in capitals, so a word of its own is quoted in these.
    """
    if _PLAIN.fullmatch(name) and name.upper() not in _words_of(dialect):
        return name
    if dialect == _FOLDS_UP and _PLAIN.fullmatch(name):
        name = name.upper()
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def _words_of(dialect: str) -> frozenset[str]:
    """The words of a dialect that may mean something else than a name, in capitals."""
    of = dialect_named(dialect)
    known = (*of.tokenizer_class.KEYWORDS, *of.generator_class.RESERVED_KEYWORDS)
    return frozenset(word.upper() for text in known for word in text.split())


def _in_quotes(text: str) -> str:
    """A text as it stands between single quotes in Spark's SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
