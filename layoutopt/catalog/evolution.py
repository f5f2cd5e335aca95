"""How a table's schema may change from one load to the next: by new nullable columns, and in no other way.

Partitions keep the plan, and so the columns, that they were loaded with. A column that came later is NULL in them.
"""

from __future__ import annotations

from layoutopt.errors import SchemaError
from layoutopt.model.schema import Column, Schema


def grown(table: Schema, plan: Schema) -> Schema:
    """The table's schema once a partition is loaded with a plan: its columns, then the plan's new ones.

    >>> table = Schema((Column("day", "date"), Column("n", "int")))
    >>> grown(table, Schema((Column("day", "date"), Column("city", "string"), Column("n", "int")))).names
    ('day', 'n', 'city')

    Raises:
        SchemaError: a column is missing, of another type, order or nullability, or new and not nullable; names it.
    """
    for column in table.columns:
        found = plan.get(column.name)
        if found is None:
            raise SchemaError(
                f"the plan lacks the table's column {column.name!r}; plan again on rows that have it (as NULL), "
                "or load the whole table"
            )
        if found != column:
            raise SchemaError(
                f"the column {column.name!r} is {_said(column)} in the table but {_said(found)} in the plan; "
                "cast it in the source and plan again, or load the whole table"
            )
    added = tuple(column for column in plan.columns if table.get(column.name) is None)
    _check_added(added)
    if [column.name for column in plan.columns if column not in added] != list(table.names):
        raise SchemaError("the plan has the table's columns in another order; plan again, or load the whole table")
    return Schema((*table.columns, *added))


def _check_added(added: tuple[Column, ...]) -> None:
    for column in added:
        if not column.nullable:
            raise SchemaError(
                f"the new column {column.name!r} is not nullable, but older partitions have no value for it; "
                "make it nullable and plan again"
            )


def _said(column: Column) -> str:
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"


def absent_columns(table: Schema, plan: Schema) -> tuple[Column, ...]:
    """The table's columns that came after a plan, and that are NULL in every row of its partitions."""
    return tuple(column for column in table.columns if plan.get(column.name) is None)


def is_older(plan: Schema, table: Schema) -> bool:
    """Whether a table's schema is a plan's, or grew out of it."""
    kept = [column for column in table.columns if plan.get(column.name) is not None]
    return set(kept) == set(plan.columns) and all(column.nullable for column in absent_columns(table, plan))
