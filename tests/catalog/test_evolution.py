"""A table's schema grows by nullable columns, and changes in no other way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.entries import absent_columns, grow_schema, is_older
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import SchemaError
from layoutopt.model.schema import Column, Schema
from tests.catalog.loads import SCHEMA, SmallLoad, plan_of

TABLE = Schema((Column("day", "date"), Column("n", "int"), Column("key", "bigint", nullable=False)))
COLUMNS = st.lists(
    st.builds(Column, st.sampled_from("abcdefgh"), st.sampled_from(["int", "string"]), st.booleans()),
    unique_by=lambda column: column.name,
    max_size=6,
).map(lambda columns: Schema(tuple(columns)))


def changed(name: str, column: Column) -> Schema:
    return Schema(tuple(column if each.name == name else each for each in TABLE.columns))


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (Schema(TABLE.columns[1:]), "lacks the table's column 'day'"),
        (changed("n", Column("n", "bigint")), "n int in the table but n bigint in the plan"),
        (changed("n", Column("N", "int")), "n int in the table but N int in the plan"),
        (changed("n", Column("n", "int", nullable=False)), "n int in the table but n int NOT NULL in the plan"),
        (changed("key", Column("key", "bigint")), "key bigint NOT NULL in the table"),
        (Schema((*TABLE.columns, Column("more", "int", nullable=False))), "new column 'more' is not nullable"),
        (Schema(TABLE.columns[::-1]), "in another order"),
    ],
)
def test_other_changes_are_refused_by_name(plan: Schema, named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        grow_schema(TABLE, plan)


@given(COLUMNS, COLUMNS)
def test_a_table_that_grew_holds_every_column_as_both_have_it(table: Schema, plan: Schema) -> None:
    try:
        after = grow_schema(table, plan)
    except SchemaError:
        return
    assert after.columns[: len(table.columns)] == table.columns
    assert set(after.columns) == set(plan.columns)
    assert is_older(table, after)
    assert is_older(plan, after)
    assert {column.name for column in absent_columns(after, table)} == set(after.names) - set(table.names)
    assert grow_schema(after, plan if list(plan.names) == list(after.names) else after) == after


def test_new_columns_come_with_a_commit_and_are_null_before_it(empty: TableFiles) -> None:
    first = SmallLoad("l0", years=(1994,)).commit(empty, None)
    later = plan_of(Schema((*SCHEMA.columns, Column("more", "int"))))
    second = SmallLoad("l1", plan=later, years=(1995,)).commit(empty, first)
    assert second.schema.names == (*SCHEMA.names, "more")
    catalog = Catalog.open(empty.root)
    assert catalog.partition_statistics().bounds["more"].nulls.tolist()[0] == catalog.partitions[0].rows
    # An older plan of the table still loads partitions, and takes nothing back.
    third = SmallLoad("l2", years=(1994,)).commit(empty, second)
    assert third.schema == second.schema
    now = Catalog.open(empty.root)
    assert [now.blocks(entry).schema for entry in now.partitions] == [SCHEMA, later.schema]


def test_a_plan_without_a_column_is_refused_unless_the_table_has_it_already(empty: TableFiles) -> None:
    base = SmallLoad("l0").commit(empty, None)
    fewer = replace(plan_of(SCHEMA), seed=7)
    SmallLoad("l1", plan=plan_of(Schema((*SCHEMA.columns, Column("more", "int"))))).commit(empty, base)
    with pytest.raises(SchemaError, match="lacks the table's column 'more'"):
        SmallLoad("l2", plan=fewer, years=(1999,)).commit(empty, base)
