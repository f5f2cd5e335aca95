"""A bounded number of row groups is read for a sample, and what is estimated from it stays within its bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.methods.interface import PlanRequest
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.schema import Column, Schema
from layoutopt.planning import plain_rows
from layoutopt.planning.plain_rows import PlainRows, Reading, SourcePass, open_plain_rows
from layoutopt.sources import listing, profile, source
from layoutopt.sources.split import FileSplit
from tests.effort import examples
from tests.scan.builder import feature_of

SCHEMA = Schema((Column("year", "int"), Column("kind", "int"), Column("id", "int")))
# Kinds 0 and 1 are read off a vector: its first and second bit.
FEATURES = FeatureSet(tuple(feature_of(f"kind = {kind}", SCHEMA) for kind in (0, 1)))
DOCUMENT = FeaturesDocument("t", SCHEMA, FEATURES, ())
CHANCE = 1e-6  # that a bound does not hold for a vector


def open_files(folder: Path, years: np.ndarray, kinds: np.ndarray, files: int) -> PlainRows:
    """Write rows to files of two row groups and open them, each row group as a split."""
    table = pa.table({"year": years.astype(np.int32), "kind": kinds.astype(np.int32)})
    table = table.append_column("id", pa.array(np.arange(len(table)), pa.int32()))
    at_once = -(-len(table) // files)
    for number in range(files):
        rows = table.slice(number * at_once, at_once)
        pq.write_table(rows, folder / f"{number:03}.parquet", row_group_size=max(1, -(-len(rows) // 2)))
    opened = open_plain_rows(str(folder), DOCUMENT, PlanRequest(partition_by="year"))
    assert opened is not None
    return opened


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10**6), sorted_by_year=st.booleans(), files=st.integers(1, 40), wanted=st.integers(1, 3_000))
def test_estimates_stay_within_their_bound(seed: int, sorted_by_year: bool, files: int, wanted: int) -> None:
    rng = np.random.default_rng(seed)
    years, kinds = rng.integers(1990, 1993, 12_000), rng.integers(0, rng.integers(2, 50), 12_000)
    years = np.sort(years) if sorted_by_year else years
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_SPLIT_BYTES", 1)
        patch.setattr(source, "SAMPLED_ROWS", 400)
        patch.setattr(plain_rows, "SAMPLE_ROWS", wanted)
        opened = open_files(Path(folder), years, kinds, files)
        counted = opened.count(FEATURES, (SCHEMA.columns[2],), lambda bounds, columns: columns)
    drawn = dict(zip(counted.bounds["_key"].to_pylist(), counted.bounds["_rows"].to_pylist(), strict=True))
    ids = {value: np.flatnonzero(years == value) for value in drawn}
    for value, vectors in counted.vectors.items():
        n, rows = drawn[value], len(ids[value])
        assert opened.partition_rows[value] == rows  # counted, not estimated
        # Hoeffding's bound of a share; rows of the splits that are not read are like the others here.
        error = sqrt(log(2 / CHANCE) / (2 * n)) + len(vectors) / rows
        expected = Counter(np.where(kinds[ids[value]] > 1, 0, kinds[ids[value]] + 1).tolist())
        found = dict(zip(vectors.words[:, 0].tolist(), vectors.counts.tolist(), strict=True))
        for word in expected | found:
            assert abs(found.get(word, 0) - expected[word]) <= error * rows
        if n == rows:
            assert found == expected
    for value, low, high in zip(
        *(counted.bounds[name].to_pylist() for name in ("_key", "_low0", "_high0")), strict=True
    ):
        assert ids[value].min() <= low <= high <= ids[value].max()


def test_a_bounded_number_of_row_groups_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_SPLIT_BYTES", 1)
    monkeypatch.setattr(source, "SAMPLED_ROWS", 100)
    years = np.tile([1990, 1991], 10_000)
    opened = open_files(tmp_path, years, years % 5, files=50)
    for value in (1990, 1991):
        some, rows = opened.source.sample_splits(value)
        assert len(some) == source._MOST_SPLITS
        assert rows == len(some) * 100
        assert [split.low for split in some] == sorted(split.low for split in some)
        paths = [split.file.path for split in some if isinstance(split, FileSplit)]
        assert paths[0] < str(tmp_path / "005.parquet")  # spread over all files
        assert paths[-1] > str(tmp_path / "045.parquet")
    assert opened.source.sample_splits(1992) == ([], 0)


def test_cells_are_measured_on_the_first_rows_of_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_FEW_BYTES", 1)  # a batch of rows at once
    years = np.tile([1990, 1991], 100_000)
    opened = open_files(tmp_path, years, years % 5, files=1)
    drawn = opened.draw_all_columns(FEATURES, (1990, 100_000), wanted=1_000)
    assert set(drawn["year"].to_pylist()) == {1990}
    assert 500 <= len(drawn) <= 4_000
    assert max(drawn["id"].to_pylist()) < 2 * 100_000 // 4
    # A partition that begins late in its row group is found.
    years = np.sort(years)
    (tmp_path / "sorted").mkdir()
    late = open_files(tmp_path / "sorted", years, years % 5, files=1)
    assert set(late.draw_all_columns(FEATURES, (1991, 100_000), wanted=1_000)["year"].to_pylist()) == {1991}
    assert len(late.draw_all_columns(FEATURES, (1991, 100_000), wanted=100_000)) == 100_000


def test_the_source_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    years = np.tile([1990, 1991], 1_000)
    opened = open_files(tmp_path, years, years % 5, files=4)
    passes: list[Reading] = []
    read = PlainRows._read

    def watched(rows: PlainRows, reading: Reading) -> SourcePass:
        passes.append(reading)
        return read(rows, reading)

    monkeypatch.setattr(PlainRows, "_read", watched)
    opened.prefetch()
    counted = [opened.count(FEATURES, (), lambda bounds, columns: columns) for _ in range(2)]
    assert len(passes) == 1
    assert counted[0].vectors[1990].counts.tolist() == counted[1].vectors[1990].counts.tolist()
    opened.count(FEATURES, (SCHEMA.columns[2],), lambda bounds, columns: columns)  # of a column that was not read
    assert len(passes) == 2
    elsewhere = replace(opened, _passes=[])
    assert elsewhere.count(FEATURES, (), lambda bounds, columns: columns).vectors.keys() == {1990, 1991}
