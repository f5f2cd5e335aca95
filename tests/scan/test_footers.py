"""Footers of data files are decoded once for an open table; who verifies reads them again."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage import footers
from layoutopt.catalog.storage.footers import DecodedFooters, read_footer
from layoutopt.errors import DataFileError
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import Table, open_table
from tests.scan.tables import expected, same, some_rows

SQL = "SELECT id, price FROM t WHERE kind = 'air' AND price > 20"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the footers that are decoded from now on."""
    sizes: list[int] = []
    decode = footers.metadata_of

    def counting(footer: bytes, decryption: pq.FileDecryptionProperties | None = None) -> pq.FileMetaData:
        sizes.append(len(footer))
        return decode(footer, decryption)

    monkeypatch.setattr(footers, "metadata_of", counting)
    return sizes


def test_an_open_table_decodes_each_footer_once(table: Table, decoded: list[int]) -> None:
    first = table.sql(SQL).to_pylist()
    once = len(decoded)
    assert 0 < once <= len({file for source in table.sources for file in source.blocks.files})
    for _ in range(2):
        assert table.sql(SQL).to_pylist() == first
    assert len(decoded) == once
    assert same(first, expected(SQL, some_rows()))
    open_table(table.catalog.files.root).sql(SQL)
    assert len(decoded) == 2 * once


def test_who_verifies_or_opens_anew_sees_a_footer_that_was_changed(table: Table) -> None:
    answer = table.sql(SQL).to_pylist()
    path = Path(table.catalog.files.root) / table.scan(SQL).reads[0].segments[0].layouts[0].files[0].path
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert table.sql(SQL).to_pylist() == answer
    assert not verify(table).ok
    with pytest.raises(DataFileError, match="footer"):
        open_table(table.catalog.files.root).sql(SQL)


def footer_of(columns: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{i}": [i] for i in range(columns)}), sink)
    return read_footer(pa.BufferReader(sink.getvalue()))


def test_the_last_used_are_kept_and_no_more_than_was_said() -> None:
    one = footer_of(3)
    kept = DecodedFooters(most=2 * len(one))
    for path in ("a", "b", "a"):
        assert kept.put(path, "x", one).num_columns == 3
    assert kept.get("a", "x") is not None
    kept.put("c", "x", one)
    assert [kept.get(path, "x") is not None for path in "abc"] == [True, False, True]
    assert kept.get("c", "other") is None
    kept.put("d", "x", footer_of(200))
    assert [kept.get(path, "x") for path in "abcd"] == [None] * 4


def test_what_is_kept_does_not_travel() -> None:
    kept = DecodedFooters()
    kept.put("a", "x", footer_of(1))
    assert pickle.loads(pickle.dumps(kept)).get("a", "x") is None
