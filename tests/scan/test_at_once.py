"""All surviving rows at once: just those that match, whatever the layouts, by however many threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.errors import DataFileError, SkippingError
from layoutopt.scan import table_read as reads
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import read_rows
from tests.scan.deleting import delete_ids, kept
from tests.scan.tables import expected, same, some_rows

MOST = 1 << 20
SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20 AND score > 0"


def at_once_of(table: Table, sql: str) -> pa.Table:
    (read,) = table.scan(sql).reads
    found = read_rows(read, MOST)
    assert found is not None
    return found


def test_rows_that_do_not_match_are_left_out(table: Table) -> None:
    found = at_once_of(table, SQL)
    assert set(found.column_names) == {"id", "kind", "price", "score"}
    assert found.num_rows == len(expected(SQL, some_rows())) > 0
    assert same(expected(SQL, found), expected(SQL, some_rows()))


def test_deleted_rows_stay_deleted(table: Table) -> None:
    gone = set(range(0, 300, 7))
    changed = delete_ids(table.catalog.files.root, gone)
    assert same(expected(SQL, at_once_of(changed, SQL)), expected(SQL, kept(some_rows(), gone)))


def test_nothing_left_has_the_same_columns(table: Table) -> None:
    found, none = at_once_of(table, SQL), at_once_of(table, SQL.replace("'air'", "'no such kind'"))
    assert none.num_rows == 0
    assert none.schema == found.schema


def test_a_file_that_is_gone_is_named(table: Table) -> None:
    scan = table.scan(SQL)
    for path in table.data_files(0):
        Path(path).unlink()
    with pytest.raises(DataFileError, match="missing"):
        read_rows(scan.reads[0], MOST)


def test_rows_of_more_bytes_are_given_up(table: Table) -> None:
    (read,) = table.scan("SELECT * FROM t").reads
    assert read_rows(read, 3_000) is None
    assert len(read_rows(read, MOST) or ()) == 300


def test_a_row_that_is_lost_is_noticed_where_skipping_is_checked(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "may_match", lambda parts, rows: np.zeros(rows.num_rows, dtype=np.bool_))
    with pytest.raises(SkippingError):
        at_once_of(table, SQL)
