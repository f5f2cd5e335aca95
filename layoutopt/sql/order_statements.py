"""Statements that make other engines keep a table's rows in an order of columns, each in the engine's own SQL.

The forms follow the engines' manuals: Delta Lake 3.3 and Databricks (OPTIMIZE, CLUSTER BY), Iceberg's procedures for
Spark, Redshift's sort keys, Snowflake's and BigQuery's clustering, DuckLake's sorted tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.sql.dialect import get_dialect

SORT: Final = "sort"
ZORDER: Final = "zorder"
HILBERT: Final = "hilbert"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UPPERCASE_DIALECT: Final = "snowflake"
_FLOATS: Final = ("float", "double")
_COPY_SUFFIX: Final = "_sorted"


@dataclass(frozen=True)
class OrderForm:
    """An engine's statements for one order of rows.

    Attributes:
        text: a template with ``{table}``, ``{copy}`` (a new table) and ``{columns}``, and for use inside single quotes
            ``{quoted_table}`` and ``{quoted_columns}``.
        most_columns: the largest number of columns; None for any number.
        takes_floats: whether ``float`` and ``double`` columns are allowed.
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
        dialect: sqlglot's name of its SQL.
        forms: by order, ``sort``, ``zorder`` or ``hilbert``.
        source: the table format that it maintains, as sources are named; None if it reads plain files or has internal
            tables.
    """

    dialect: str
    forms: Mapping[str, OrderForm]
    source: str | None = None


_DELTA_FORMS: Final[Mapping[str, OrderForm]] = MappingProxyType(
    {
        ZORDER: OrderForm("OPTIMIZE {table} ZORDER BY ({columns})"),
        HILBERT: OrderForm(
            "ALTER TABLE {table} CLUSTER BY ({columns}); OPTIMIZE {table} FULL", 4, takes_partitions=False
        ),
    }
)

# The engines, by their names on the command line.
ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        "spark-delta": Engine("spark", _DELTA_FORMS, "delta"),
        "databricks": Engine("databricks", _DELTA_FORMS, "delta"),
        "iceberg": Engine(
            "spark",
            {
                SORT: OrderForm(
                    "ALTER TABLE {table} WRITE ORDERED BY {columns}; "
                    "CALL system.rewrite_data_files(table => '{quoted_table}', strategy => 'sort', "
                    "options => map('rewrite-all', 'true'))"
                ),
                ZORDER: OrderForm(
                    "CALL system.rewrite_data_files(table => '{quoted_table}', strategy => 'sort', "
                    "sort_order => 'zorder({quoted_columns})', options => map('rewrite-all', 'true'))"
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


def engines_for(format: str | None, system: str | None) -> tuple[str, ...]:
    """Return the engines that suit a table: those of its format and of its log's system; all if there are none.

    ``format`` is ``delta``, ``iceberg``, or None for Parquet files; ``system`` wrote the log.

    >>> engines_for("iceberg", None), engines_for(None, "snowflake")
    (('iceberg',), ('snowflake',))
    """
    by_format = (name for name, engine in ENGINES.items() if format is not None and engine.source == format)
    by_system = (name for name in ENGINES if name == system)
    return tuple(dict.fromkeys((*by_format, *by_system))) or tuple(ENGINES)


def order_statement(
    engine: str, order: str, table: str, columns: Sequence[str], types: Sequence[str], *, partitioned: bool = False
) -> str | None:
    """Return the statements that make an engine keep a table's rows in an order; None if the engine can't.

    ``order`` is ``sort``, ``zorder`` or ``hilbert``; ``types`` are the columns' Spark types.

    >>> order_statement("ducklake", "sort", "events", ["day", "user id"], ["date", "string"])
    'ALTER TABLE events SET SORTED BY (day, "user id")'
    >>> order_statement("bigquery", "sort", "events", ["price"], ["double"]) is None
    True
    """
    dialect, form = ENGINES[engine].dialect, ENGINES[engine].forms.get(order)
    if form is None or not columns or (form.most_columns is not None and len(columns) > form.most_columns):
        return None
    if partitioned > form.takes_partitions or (not form.takes_floats and not set(_FLOATS).isdisjoint(types)):
        return None
    parts = table.split(".")
    name = ".".join(_format_identifier(part, dialect) for part in parts)
    copy = ".".join(_format_identifier(part, dialect) for part in (*parts[:-1], parts[-1] + _COPY_SUFFIX))
    names = ", ".join(_format_identifier(column, dialect) for column in columns)
    return form.text.format(
        table=name, copy=copy, columns=names, quoted_table=_escape_quoted(name), quoted_columns=_escape_quoted(names)
    )


def _format_identifier(name: str, dialect: str) -> str:
    """Quote a name if the engine requires it.

    Snowflake folds unquoted names to upper case, so a reserved word is quoted in upper case.
    """
    if _PLAIN.fullmatch(name) and name.upper() not in _reserved_words(dialect):
        return name
    if dialect == _UPPERCASE_DIALECT and _PLAIN.fullmatch(name):
        name = name.upper()
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def _reserved_words(dialect: str) -> frozenset[str]:
    """Return the words of a dialect that may not be names, in upper case."""
    classes = get_dialect(dialect)
    keywords = (*classes.tokenizer_class.KEYWORDS, *classes.generator_class.RESERVED_KEYWORDS)
    return frozenset(word.upper() for keyword in keywords for word in keyword.split())


def _escape_quoted(text: str) -> str:
    """Escape a text for use between single quotes in Spark's SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
