"""What of a snapshot is shown: which tables of which columns, their files, and what is known of each file's values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import merged
from layoutopt.catalog.snapshot import Bounds, PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, PublicationError
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import Key

IN_CATALOG = "iceberg:"
"""What a place begins with that a catalog names: ``iceberg:CATALOG/NAMESPACE.TABLE``."""


@dataclass(frozen=True)
class View:
    """One table that a snapshot is shown as.

    Attributes:
        layout: the layout whose files it has; None: of each partition's plan one that holds all columns for all rows.
        columns: the columns that are shown.
        partition_by: the column by which the formats' own partitions are made, None where there are none.
        hidden: the table's other columns, which some of the files may hold for some rows.
    """

    layout: int | None
    columns: Schema
    partition_by: str | None
    hidden: Schema

    def layout_in(self, plan: Plan) -> int:
        """The layout that is shown of a partition of some plan."""
        found = covering_layout(plan) if self.layout is None else self.layout
        assert found is not None, "views_of looked at every plan"
        return found

    def location(self, root: str) -> str:
        """Where the view is shown: at the place given, or where there are several, below it; in a catalog beside it."""
        if self.layout is None or root.startswith(IN_CATALOG):
            return self.named(root)
        return f"{root.rstrip('/')}/layout-{self.layout}"

    def named(self, table: str) -> str:
        """What the view of a table of a catalog is called there."""
        return table if self.layout is None else f"{table}_layout_{self.layout}"


def covering_layout(plan: Plan) -> int | None:
    """The first layout that holds all columns for all rows; None where there is none."""
    everything = set(plan.schema.names)
    layouts = enumerate(plan.scheme.layouts)
    return next((number for number, layout in layouts if set(layout.master) == everything), None)


def views_of(catalog: Catalog) -> tuple[View, ...]:
    """The tables that a snapshot is shown as: one where a layout holds everything, else one for each layout.

    Raises:
        PublicationError: there is no such layout in each partition, and the partitions' plans differ in their layouts;
            or rows are deleted that data files still have.
        EncryptedTableError: the files are encrypted.
    """
    catalog.files.check_plain()
    for entry in catalog.partitions:
        if entry.deletes is not None:
            raise PublicationError(
                f"partition {entry.key!r} of {catalog.files.root!r} has {entry.deletes.rows} deleted rows that its "
                "files still hold; run `layoutopt optimize --deleted-share 0` first, which writes it anew"
            )
    schema, by = catalog.schema, _partition_column(catalog)
    plans = list(catalog.plans.values())
    if all(covering_layout(plan) is not None for plan in plans):
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
    """The partition column, where other formats can say its every value exactly.

    Instants, decimals and the like are told apart by minima and maxima alone, which skips as well.
    """
    name = catalog.snapshot.partition_by
    if name is None:
        return None
    type = catalog.schema.find(name).type
    return catalog.schema.find(name).name if type in INTEGER_BITS or type in ("date", "string") else None


@dataclass(frozen=True, eq=False)
class DataFile:
    """One data file of a view, and what the catalog knows of it.

    Attributes:
        path: relative to the table.
        rows: how many it has.
        entry: the partition's entry that it belongs to.
        table, blocks: its blocks, and their places in the table of blocks (int64[n]).
    """

    path: str
    rows: int
    entry: PartitionEntry
    table: BlockTable
    blocks: Ints

    def bounds(self, column: Column) -> Bounds:
        """What is known of a column's values in the file; of floats the high key is NaN's where there may be one.

        A column that came with later plans is NULL in every row.
        """
        held = self.table.schema.get(column.name)
        if held is None:
            return Bounds(nulls=self.rows)
        return merged(self.table.block_statistics().bounds[held.name], self.table.rows, self.blocks)

    def nans(self, column: Column) -> int | None:
        """How many values of a float column are NaN; None where that is not known."""
        held = self.table.schema.get(column.name)
        counts = np.zeros(1, dtype=np.int64) if held is None else self.table.column_nans(held.name)[self.blocks]
        return None if (counts < 0).any() else int(counts.sum())

    def bytes_of(self, column: Column) -> int:
        """The compressed bytes of a column; 0 where that is not known."""
        held = self.table.schema.get(column.name)
        return 0 if held is None else int(self.table.column_bytes(held.name)[self.blocks].sum())

    def partition_value(self, column: Column) -> int | str | None:
        """The value that the partition column has in every row: a number, days since 1970 for a date, or a text.

        Raises:
            CatalogError: what was measured of the rows contradicts the partition's value.
        """
        bounds, value = self.bounds(column), self.entry.value
        found: Key | None
        if value is None:
            found, agrees = None, bounds.nulls == self.rows
        elif column.type == "string":
            found, agrees = str(value), bounds.nulls == 0
        else:
            found, agrees = bounds.low, bounds.nulls == 0 and bounds.low == bounds.high and bounds.low is not None
            spelled = np.datetime64(found, "D") if column.type == "date" and agrees else found
            agrees = agrees and str(spelled) == str(value)
        if not agrees or isinstance(found, bytes):
            raise CatalogError(
                f"the file {self.path!r} is not of {column.name} = {value} alone, as its catalog says; verify the table"
            )
        return found


def files_of(catalog: Catalog, view: View) -> dict[str, DataFile]:
    """The data files of a view by their paths.

    Raises:
        CatalogError: a blocks file is missing or damaged.
    """
    return {path: file for entry in catalog.partitions for path, file in files_in(catalog, view, entry).items()}


def files_in(catalog: Catalog, view: View, entry: PartitionEntry) -> dict[str, DataFile]:
    """The data files that a view has of one entry of the snapshot, by their paths; raises as :func:`files_of`."""
    table, found = catalog.blocks(entry), {}
    chosen = np.flatnonzero(table.layout == view.layout_in(catalog.plans[entry.plan]))
    order = chosen[np.argsort(table.file[chosen], kind="stable")]
    numbers, starts = np.unique(table.file[order], return_index=True)
    for number, blocks in zip(numbers.tolist(), np.split(order, starts[1:]), strict=bool(len(numbers))):
        path = table.files[number]
        found[path] = DataFile(path, int(table.rows[blocks].sum()), entry, table, blocks)
    return found


def sizes_of(catalog: Catalog, wanted: Collection[str]) -> dict[str, tuple[int, float]]:
    """The size in bytes of some files, and when they were written (seconds since 1970, 0 where unknown), by path.

    Raises:
        CatalogError: a file is missing.
    """
    folders = {path.rpartition("/")[0] for path in wanted}
    stored = {file.path: file for folder in sorted(folders) for file in catalog.files.walk(folder)}
    missing = sorted(set(wanted) - set(stored))
    if missing:
        raise CatalogError(f"the data file {missing[0]!r} is missing; restore it or load its partition again")
    return {path: (stored[path].size, stored[path].modified or 0.0) for path in wanted}
