"""A table that is to be changed, and the plan by which it goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.errors import NotATableError
from layoutopt.inspect.status import current_plan
from layoutopt.model.layout import Plan
from layoutopt.scan.table import Table, open_own_table
from layoutopt.spark.core.functions import check_plan, declared
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.loading.same_rows import rows_of_entries

_VALUE = "_w_value"


@dataclass(frozen=True)
class Place:
    """A table that is being changed, at one snapshot."""

    spark: SparkSession
    path: str
    table: Table
    plan: Plan

    @property
    def names(self) -> PartitionNames:
        """Of the table's partitions."""
        return PartitionNames.of(self.plan.schema, self.plan.partition_by, self.table.catalog.snapshot)

    def known_values(self, entries: Sequence[PartitionEntry]) -> tuple[PlainValue, ...] | None:
        """The values of some partitions by what the catalog knows of their rows; None where it doesn't tell one."""
        names = self.names
        by_key: dict[str, PlainValue] = {}
        for entry in entries:
            for value in names.value_of(entry):
                by_key[entry.key] = value
        return tuple(by_key.values()) if len(by_key) == len({entry.key for entry in entries}) else None

    def values_in(self, rows: DataFrame) -> tuple[PlainValue, ...]:
        """The values of the partition column that some rows have; one None where there are no partitions."""
        if self.plan.partition_by is None:
            return (None,)
        column = partition_column(rows, self.plan.partition_by).alias(_VALUE)
        return tuple(row[_VALUE] for row in rows.select(column).distinct().collect())

    def values_of(self, keys: Collection[str]) -> tuple[PlainValue, ...]:
        """The values of some partitions, by what their files hold: deleted rows tell it where no other is left."""
        catalog = self.table.catalog
        stored = tuple(replace(entry, deletes=None) for entry in catalog.partitions)
        whole = replace(self.table, catalog=replace(catalog, snapshot=replace(catalog.snapshot, partitions=stored)))
        chosen = [entry for entry in stored if entry.key in keys]
        return self.values_in(rows_of_entries(self.spark, whole, chosen)) if chosen else ()

    def entries(self, values: Sequence[PlainValue]) -> tuple[PartitionEntry, ...]:
        """What the table has of some partitions."""
        names = self.names
        by_key = self.table.catalog.snapshot.by_key
        return tuple(entry for value in values for entry in by_key.get(names.key(value), ()))


def open_to_change(spark: SparkSession, path: str) -> tuple[Table, Plan]:
    """A table at its newest snapshot, and its newest plan.

    Raises:
        NotATableError: there is no table, or none that names a plan.
        SettingError: the session's settings or functions are not those of the table's plans.
    """
    table = open_own_table(path, udfs=tuple(declared(spark).values()))
    if not table.catalog.plans:
        raise NotATableError(f"the table at {path!r} names no plan yet; run `layoutopt load` first")
    for plan in table.catalog.plans.values():
        check_plan(spark, plan, "the table")
    return table, current_plan(table.catalog)
