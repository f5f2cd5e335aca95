"""Files that somebody else keeps: a stock pyiceberg reads the source's rows through the server, and fewer files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from layoutopt.publish.iceberg_metadata import iceberg_schema
from tests.effort import examples
from tests.external.folders import index
from tests.publish.typed import NESTED, SCHEMA, typed_rows
from tests.serve.expressions import Readers, expressions, ice
from tests.serve.serving import Served, serving
from tests.serve.sources import in_order, unskipped, write_by_folders

INDEXES = ("big:bloom", "s:value-list", "price:gap-list", "raw:bloom", "x:bloom", "f:value-list")


@dataclass(frozen=True, eq=False)
class Folder:
    """A served folder of Parquet, its rows, and what three readers make of these."""

    served: Served
    table: Table
    rows: pa.Table
    readers: Readers

    def check(self, filter: Any) -> None:
        """Compares a scan with its rows, and with a scan of all files."""
        found = in_order(self.table.scan(row_filter=filter).to_arrow())
        assert found == unskipped(self.table, filter, self.all)
        ids, matching = {row["id"] for row in found}, self.readers.matching(filter)
        least = set(self.rows["id"].filter(pa.array(matching["arrow"])).to_pylist())
        most = set(self.rows["id"].filter(pa.array(np.logical_or.reduce(list(matching.values())))).to_pylist())
        assert ids <= most
        # Arrow skips row groups by footers, which know nothing of NaN.
        assert least <= ids or mentions(filter, ("x", "f"))

    @cached_property
    def all(self) -> list[Any]:
        """The tasks of all files."""
        return list(self.table.scan().plan_files())


def mentions(filter: Any, names: tuple[str, ...]) -> bool:
    return any(f"Reference(name='{name}')" in repr(filter) or f"'{name}'" in str(filter) for name in names)


def folder(served: Served, rows: pa.Table, connection: duckdb.DuckDBPyConnection) -> Folder:
    table = served.table("indexes")
    return Folder(served, table, rows, Readers(iceberg_schema(SCHEMA), rows, connection))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Folder]]:
    """A folder as it was indexed, and one of which files were added, changed and removed since."""
    root = tmp_path_factory.mktemp("others")
    first, changed, added = typed_rows(24, 1), shifted(typed_rows(7, 2), 200), shifted(typed_rows(5, 3), 100)
    for name in ("a", "b"):
        for part in range(3):
            write_by_folders(root / name / "source", first.slice(part * 8, 8), f"part-{part}")
        index(root / name / "source", root / name / "indexes", INDEXES)
    source = root / "b" / "source"
    for path in [*source.rglob("part-1.parquet"), *source.rglob("part-2.parquet")]:
        path.unlink()
    write_by_folders(source, changed, "part-1")
    write_by_folders(source, added, "part-3")
    now = pa.concat_tables([first.slice(0, 8), changed, added])
    with (
        serving([root / "a" / "indexes"]) as one, serving([root / "b" / "indexes"]) as other,
        duckdb.connect() as connection,
    ):  # fmt: skip
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        yield [folder(one, first, connection), folder(other, now, connection)]


def shifted(rows: pa.Table, by: int) -> pa.Table:
    ids = pa.array([value + by for value in rows["id"].to_pylist()], pa.int32())
    return rows.set_column(0, "id", ids)


def test_all_rows_are_the_sources(folders: list[Folder]) -> None:
    for one in folders:
        table = one.table
        assert in_order(table.scan().to_arrow().select(SCHEMA.names)) == in_order(one.rows)
        assert table.scan().count() == one.rows.num_rows
        own = one.served.client(**{"scan-planning-mode": "client"}).load_table("default.indexes")
        with pytest.raises(FileNotFoundError, match="planned-by-its-catalog-alone"):
            own.scan().to_arrow()


@pytest.mark.unshadowed("compares what is skipped with the rows itself")
@settings(max_examples=examples(100))
@given(which=st.sampled_from([0, 1]), filter=expressions([n for n in SCHEMA.names if n not in NESTED]))
def test_generated_filters(folders: list[Folder], which: int, filter: Any) -> None:
    folders[which].check(filter)


@pytest.mark.long
def test_files_are_left_out(folders: list[Folder]) -> None:
    some = [
        ice.EqualTo("s", "é"), ice.EqualTo("big", 2**62), ice.LessThan("price", 0), ice.EqualTo("raw", b"a"),
        ice.EqualTo("day", dt.date(2024, 2, 29)), ice.IsNull("day"), ice.EqualTo("p", "a/b=c d"), ice.IsNull("p"),
        ice.And(ice.EqualTo("day", dt.date(1, 1, 1)), ice.EqualTo("s", "a")), ice.NotEqualTo("p", "z"),
        ice.Not(ice.EqualTo("p", "z")), ice.In("p", ["z", "é%41"]), ice.StartsWith("p", "y"),
        ice.Or(ice.EqualTo("p", "z"), ice.EqualTo("id", 3)), ice.EqualTo("id", 3),
    ]  # fmt: skip
    for one in folders:
        counts = []
        for filter in some:
            scan = one.table.scan(row_filter=filter)
            files = list(scan.plan_files())
            assert unskipped(one.table, filter, files) == unskipped(one.table, filter, one.all)
            counts.append(len(files))
        assert one.table.scan(row_filter=some[0]).count() == len(unskipped(one.table, some[0], one.all))
        # What came since is always read; of the rest most is not.
        came = [task for task in one.all if "part-0" not in task.file.file_path]
        unknown = len(came) if one is folders[1] else 0
        assert max(counts[:9]) < len(one.all), counts
        assert sum(counts) < len(counts) * (unknown + 0.6 * (len(one.all) - unknown)), counts
