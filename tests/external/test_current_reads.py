"""What queries read of files as they lie, by their footers: never less than holds what they ask for."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutopt.errors import SourceError
from layoutopt.external.current_reads import MOST_PARTITIONS, RowGroups, read_row_groups, sample_files
from layoutopt.external.external_tables import open_snapshot
from layoutopt.external.formats import DELTA, ICEBERG, SourceName
from layoutopt.external.snapshot import SnapshotFile, parquet_files
from layoutopt.model.arrays import Ints
from layoutopt.model.query import Query
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.effort import examples
from tests.external.tables import delta_table, iceberg_table
from tests.scan.tables import SCHEMA, expected, some_rows

ROWS = some_rows().filter(pc.invert(pc.fill_null(pc.is_nan(some_rows()["score"]), False)))
CONDITIONS = [
    "id BETWEEN 10 AND 40", "day < date '1995-01-01'", "kind = 'air'", "kind LIKE 'ra%'", "price > 90", "score < 0.25",
    "score >= 0.9", "seen IS NULL", "year = 1995", "kind IS NULL", "price IS NOT NULL",
    "year(day) = 1996", "kind IN ('mail', '')",
]  # fmt: skip


def queries(*texts: str) -> tuple[Query, ...]:
    entries = [LogEntry(number, f"SELECT price FROM t WHERE {text}") for number, text in enumerate(texts)]
    return analyze(entries, SCHEMA, "t").queries


def written(folder: Path, rows: pa.Table, size: int) -> tuple[SnapshotFile, ...]:
    """Two files of row groups of so many rows."""
    folder.mkdir(exist_ok=True)
    half = rows.num_rows // 2
    for name, part in (("a b", rows.slice(0, half)), ("c", rows.slice(half))):
        pq.write_table(part, folder / f"{name}.parquet", row_group_size=size)
    return parquet_files([f"file://{quote(str(path), safe='/=')}" for path in folder.iterdir()], SCHEMA)


def groups_of(folder: Path) -> list[pa.Table]:
    files = [pq.ParquetFile(path) for path in sorted(folder.iterdir())]
    return [file.read_row_group(number) for file in files for number in range(file.num_row_groups)]


def chunk_bytes(found: RowGroups, query: Query) -> Ints:
    return np.asarray(np.sum([found.bytes[name] for name in query.columns], axis=0))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.sampled_from(SCHEMA.names),
    size=st.integers(10, 120),
    parts=st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2, unique=True),
    joined=st.sampled_from([" AND ", " OR "]),
)
def test_no_row_group_with_a_match_counts_as_skipped(
    tmp_path: Path, order: str, size: int, parts: list[str], joined: str
) -> None:
    files = written(tmp_path / "rows", ROWS.sort_by(order), size)
    (query,) = queries(joined.join(f"({part})" for part in parts))
    found = read_row_groups(files, SCHEMA, [query])
    ids = {row["id"] for row in expected(f"SELECT id FROM t WHERE {joined.join(parts)}", ROWS)}
    matching = [not ids.isdisjoint(group["id"].to_pylist()) for group in groups_of(tmp_path / "rows")]
    assert found.rows == ROWS.num_rows
    assert found.read([query])[0] >= chunk_bytes(found, query)[np.array(matching)].sum()
    assert found.read([query])[0] <= found.full([query])[0] == chunk_bytes(found, query).sum()


def test_row_groups_that_bounds_exclude_are_not_read(tmp_path: Path) -> None:
    files = written(tmp_path / "rows", ROWS.sort_by("id"), 20)
    (query,) = queries("id BETWEEN 10 AND 12")
    found = read_row_groups(files, SCHEMA, [query])
    assert found.read([query])[0] == chunk_bytes(found, query)[0]
    assert found.stored == sum(
        pq.read_metadata(path).row_group(g).column(c).total_compressed_size
        for path in (tmp_path / "rows").iterdir()
        for g in range(pq.read_metadata(path).num_row_groups)
        for c in range(len(SCHEMA.names))
    )


def test_folders_say_what_files_do_not(tmp_path: Path) -> None:
    for year, name in ((1994, "1994"), (1995, "1995"), (None, "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"year={name}"
        folder.mkdir()
        pq.write_table(ROWS.filter(pc.equal(ROWS["year"], year or 1996)).drop_columns("year"), folder / "a.parquet")
    files = parquet_files([f"file://{quote(str(path), safe='/=')}" for path in tmp_path.rglob("*.parquet")], SCHEMA)
    assert [file.constants["year"] for file in files] == ["1994", "1995", None]
    one, none, missing = queries("year = 1995", "year IS NULL", "year > 2000")
    found = read_row_groups(files, SCHEMA, [one, none, missing])
    sizes = chunk_bytes(found, one)
    assert found.read([one, none, missing]).tolist() == [sizes[1], sizes[2], 0]


def test_a_sample_of_many_files_stands_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (query,) = queries("id >= 0")
    all_files = written(tmp_path / "rows", ROWS, 20)
    whole = read_row_groups(all_files, SCHEMA, [query])
    monkeypatch.setattr("layoutopt.external.current_reads.MOST_FILES", 1)
    one = read_row_groups(all_files, SCHEMA, [query])
    assert (one.files, one.scale) == (2, 2.0)
    assert one.rows == pytest.approx(whole.rows, rel=0.02)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.parquet"):
        read_row_groups([SnapshotFile(str(tmp_path / "gone.parquet"), SCHEMA.names)], SCHEMA, queries("id > 1"))


def test_tables_of_other_formats(tmp_path: Path) -> None:
    delta = open_snapshot(SourceName(DELTA, delta_table(tmp_path / "d"), None))
    entries = [LogEntry(0, "SELECT id FROM t WHERE p = 'a b'"), LogEntry(1, "SELECT p FROM t WHERE id > 100")]
    asked = analyze(entries, delta.schema, "t").queries
    found = read_row_groups(delta.files, delta.schema, asked)
    read, full = found.read(asked), found.full(asked)
    assert 0 < read[0] < full[0]
    assert (read[1], full[1] > 0) == (0, True)
    (tmp_path / "i").mkdir()
    iceberg = open_snapshot(SourceName(ICEBERG, iceberg_table(tmp_path / "i").metadata_location, None))
    asked = analyze([LogEntry(0, "SELECT id FROM t WHERE id > 1000")], iceberg.schema, "t").queries
    found = read_row_groups(iceberg.files, iceberg.schema, asked)
    assert found.read(asked)[0] == 0 < found.full(asked)[0]


def test_some_files_hold_whole_segments() -> None:
    plain = [SnapshotFile(f"{i:02}", ("a",)) for i in range(40)]
    assert sample_files(plain, 10, None, 1_000) == tuple(plain)
    assert [file.path for file in sample_files(plain, 10, None, 30)] == ["08", "09", "10", "28", "29", "30"]
    parted = [SnapshotFile(f"{i:02}", ("a",), {"day": i // 4}) for i in range(40)]
    chosen = sample_files(parted, 10, "day", 20)
    assert len({file.constants["day"] for file in chosen}) == MOST_PARTITIONS
    assert len(chosen) == 2 * MOST_PARTITIONS
    assert sample_files(parted, 10, "a", 20) == tuple(parted)
