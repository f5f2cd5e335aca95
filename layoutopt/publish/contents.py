"""The tables that a snapshot is published as, their data files, and the statistics of these."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merge_bounds
from layoutopt.catalog.partition_entry import Bounds, PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, PublicationError
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import Key

# The prefix of locations in an Iceberg catalog: ``iceberg:CATALOG/NAMESPACE.TABLE``.
IN_CATALOG = "iceberg:"


@dataclass(frozen=True)
class View:
    """One table that a snapshot is published as.

    Attributes:
        layout: the published layout; None for a layout of each partition's plan that holds all columns for all rows.
        columns: the published columns.
        partition_by: the partition column of the published table, or None.
        hidden: the other columns, which some files may hold for some rows.
    """

    layout: int | None
    columns: Schema
    partition_by: str | None
    hidden: Schema

    def find_layout(self, plan: Plan) -> int:
        """Return the published layout of a partition with this plan."""
        layout = find_covering_layout(plan) if self.layout is None else self.layout
        assert layout is not None, "views_of checked every plan"
        return layout

    def location(self, root: str) -> str:
        """Return the location of the view: ``root``, or a folder below it, or a sibling in a catalog."""
        if self.layout is None or root.startswith(IN_CATALOG):
            return self.named(root)
        return f"{root.rstrip('/')}/layout-{self.layout}"

    def named(self, table: str) -> str:
        """Return the name of the view of a catalog's table."""
        return table if self.layout is None else f"{table}_layout_{self.layout}"


def find_covering_layout(plan: Plan) -> int | None:
    """Return the first layout that holds all columns for all rows, or None."""
    everything = set(plan.schema.names)
    layouts = enumerate(plan.scheme.layouts)
    return next((number for number, layout in layouts if set(layout.master) == everything), None)


def find_views(catalog: Catalog) -> tuple[View, ...]:
    """Return the tables that a snapshot is published as: one if a layout holds all columns, else one a layout.

    Raises:
        PublicationError: no layout holds all columns and the partitions' schemes differ, or files hold deleted rows.
        EncryptedTableError: the files are encrypted.
    """
    catalog.files.check_plain()
    for entry in catalog.partitions:
        if entry.deletes is not None:
            raise PublicationError(
                f"partition {entry.key!r} of {catalog.files.root!r} has {entry.deletes.rows} deleted rows that its "
                "files still hold; first rewrite it by `layoutopt optimize --deleted-share 0`"
            )
    schema, by = catalog.schema, _partition_column(catalog)
    plans = list(catalog.plans.values())
    if all(find_covering_layout(plan) is not None for plan in plans):
        return (View(None, schema, by, Schema(())),)
    masters = {tuple(frozenset(layout.master) for layout in plan.scheme.layouts) for plan in plans}
    if len(masters) > 1:
        raise PublicationError(
            f"the partitions of {catalog.files.root!r} have {len(masters)} different schemes of column groups, so no "
            "table can show them; reload them by one plan, or by a plan of one layout"
        )
    (layouts,) = masters
    return tuple(_view(number, schema, master, by) for number, master in enumerate(layouts) if master)


def _view(layout: int, schema: Schema, master: Collection[str], by: str | None) -> View:
    shown, hidden = (
        Schema(tuple(column for column in schema.columns if (column.name in master) == whole))
        for whole in (True, False)
    )
    return View(layout, shown, by if by in master else None, hidden)


def _partition_column(catalog: Catalog) -> str | None:
    """Return the partition column if other formats can store its values exactly, else None."""
    name = catalog.snapshot.partition_by
    if name is None:
        return None
    type = catalog.schema.find(name).type
    return catalog.schema.find(name).name if type in INTEGER_BITS or type in ("date", "string") else None


@dataclass(frozen=True, eq=False)
class DataFile:
    """One data file of a view, its partition entry, and its blocks.

    ``path`` is relative to the table; ``blocks`` are the rows of ``table`` that describe the file's blocks, int64[n].
    """

    path: str
    rows: int
    entry: PartitionEntry
    table: BlockTable
    blocks: Ints

    def bounds(self, column: Column) -> Bounds:
        """Return the bounds of a column in the file; the high key of floats is NaN's if there may be one.

        Columns that only later plans have are NULL in every row.
        """
        held = self.table.schema.get(column.name)
        if held is None:
            return Bounds(nulls=self.rows)
        return merge_bounds(self.table.block_statistics().bounds[held.name], self.table.rows, self.blocks)

    def nans(self, column: Column) -> int | None:
        """Return the number of NaNs of a float column, or None if unknown."""
        held = self.table.schema.get(column.name)
        counts = np.zeros(1, dtype=np.int64) if held is None else self.table.column_nans(held.name)[self.blocks]
        return None if (counts < 0).any() else int(counts.sum())

    def bytes_of(self, column: Column) -> int:
        """Return the compressed bytes of a column; 0 if unknown."""
        held = self.table.schema.get(column.name)
        return 0 if held is None else int(self.table.column_bytes(held.name)[self.blocks].sum())

    def partition_value(self, column: Column) -> int | str | None:
        """Return the partition column's value in every row: a number, days since 1970 for a date, or a string.

        Raises:
            CatalogError: the file's bounds contradict the partition's value.
        """
        bounds, value = self.bounds(column), self.entry.value
        key: Key | None
        if value is None:
            key, agrees = None, bounds.nulls == self.rows
        elif column.type == "string":
            key, agrees = str(value), bounds.nulls == 0
        else:
            key, agrees = bounds.low, bounds.nulls == 0 and bounds.low == bounds.high and bounds.low is not None
            text = np.datetime64(key, "D") if column.type == "date" and agrees else key
            agrees = agrees and str(text) == str(value)
        if not agrees or isinstance(key, bytes):
            raise CatalogError(
                f"the bounds of {self.path!r} contradict its partition, {column.name} = {value}; verify the table"
            )
        return key


def list_files(catalog: Catalog, view: View) -> dict[str, DataFile]:
    """Return the data files of a view by path.

    Raises:
        CatalogError: a blocks file is missing or damaged.
    """
    return {path: file for entry in catalog.partitions for path, file in list_entry_files(catalog, view, entry).items()}


def list_entry_files(catalog: Catalog, view: View, entry: PartitionEntry) -> dict[str, DataFile]:
    """Return the data files of a view in one partition entry by path; raises as :func:`list_files`."""
    table, files = catalog.blocks(entry), {}
    chosen = np.flatnonzero(table.layout == view.find_layout(catalog.plans[entry.plan]))
    order = chosen[np.argsort(table.file[chosen], kind="stable")]
    numbers, starts = np.unique(table.file[order], return_index=True)
    for number, blocks in zip(numbers.tolist(), np.split(order, starts[1:]), strict=bool(len(numbers))):
        path = table.files[number]
        files[path] = DataFile(path, int(table.rows[blocks].sum()), entry, table, blocks)
    return files


def find_sizes(catalog: Catalog, wanted: Collection[str]) -> dict[str, tuple[int, float]]:
    """Return the sizes in bytes and write times (seconds since 1970, 0 if unknown) of files by path.

    Raises:
        CatalogError: a file is missing.
    """
    folders = {path.rpartition("/")[0] for path in wanted}
    stored = {file.path: file for folder in sorted(folders) for file in catalog.files.walk(folder)}
    missing = sorted(set(wanted) - set(stored))
    if missing:
        raise CatalogError(f"the data file {missing[0]!r} is missing; restore it or load its partition again")
    return {path: (stored[path].size, stored[path].modified or 0.0) for path in wanted}
