"""Tables on disk for tests, written by pyarrow through the catalog's own commit: independent of Spark.

Rows are cut into blocks by any function of the test; union vectors, statistics and checksums are measured from the rows
of each block; whether a row has a feature is asked of DuckDB, which shares no code with the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.commit import Basis, CommitHook, Load, commit_load, ensure_table_root, partition_entries
from layoutopt.catalog.deletion_vectors import Marks
from layoutopt.catalog.paths import data_path, partition_key
from layoutopt.catalog.statistics import block_statistics
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import footer_at_end, footer_digest
from layoutopt.catalog.storage.index_files import split_indexes
from layoutopt.evaluation.checksum import Positions, block_sums, is_hashable, sum_with_positions, value_hashes
from layoutopt.indexes.measuring import blocks_with_indexes, measure_indexes
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import pack
from layoutopt.scan.table import Table, open_table
from layoutopt.sql.scans import find_scans
from layoutopt.writer.encodings import list_chunks, row_group_starts
from tests import duck

Blocking = Callable[[pa.Table, np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""From a segment's rows and their bits, bool[n, f], to each row's block, int[n]."""


def by_position(block_rows: int) -> Blocking:
    """Blocks of consecutive rows."""
    return lambda rows, bits: np.arange(rows.num_rows) // block_rows


def by_vector(rows: pa.Table, bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A block for each distinct feature vector: the best that SOP could do."""
    if not rows.num_rows or not bits.shape[1]:
        return np.zeros(rows.num_rows, dtype=np.int64)
    return np.unique(bits, axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True)
class Building:
    """A plan, its features as SQL conditions that mean the same to DuckDB, and how rows are cut into blocks."""

    plan: Plan
    conditions: tuple[str, ...]
    blocking: Blocking = by_vector
    segment_rows: int = 1_000_000
    footers: bool = False  # whether the catalog knows them; tests that rewrite files don't want that
    mixed: bool = False  # whether the rows of a block stand in any order, as where a layout sorts them
    key: str | None = None  # where the key is to be had by which the table is encrypted


def building(
    schema: Schema,
    conditions: Sequence[str] = (),
    *,
    blocking: Blocking = by_vector,
    layouts: Sequence[Layout] | None = None,
    partition_by: str | None = None,
    settings: SessionSettings | None = None,
    segment_rows: int = 1_000_000,
    footers: bool = False,
    mixed: bool = False,
    indexes: Sequence[IndexSpec] = (),
) -> Building:
    """A building whose plan has a feature for each condition, of one layout unless told."""
    used = settings or SessionSettings()
    features = tuple(feature_of(condition, schema) for condition in conditions)
    whole = Layout(schema.names, tuple(range(len(features))), schema.names, ByVectors())
    plan = Plan(
        table="t", schema=schema, partition_by=partition_by, method="sop",
        features=FeatureSet(features, used), queries=(), scheme=Scheme(tuple(layouts or [whole])),
        block_rows=10, segment_rows=1000, max_vectors=1000, seed=0, settings=used, predicted={}, indexes=tuple(indexes),
    )  # fmt: skip
    return Building(plan, tuple(conditions), blocking, segment_rows, footers, mixed)


def feature_of(condition: str, schema: Schema) -> Feature:
    """The feature that a condition is."""
    (scan,) = find_scans(f"SELECT * FROM t WHERE {condition}", {"t": schema})
    assert not scan.unusable, scan.unusable
    return Feature(scan.filter.predicates, 1.0)


def holds(rows: pa.Table, conditions: Sequence[str]) -> np.ndarray[Any, Any]:
    """Whether each row makes each condition TRUE, bool[n, conditions], by DuckDB."""
    if not conditions:
        return np.zeros((rows.num_rows, 0), dtype=np.bool_)
    with duck.connection() as connection:
        connection.register("t", rows.append_column("_row", pa.array(range(rows.num_rows))))
        tests = ", ".join(f"coalesce(({condition}), false) AS c{i}" for i, condition in enumerate(conditions))
        found = connection.sql(f"SELECT {tests} FROM t ORDER BY _row").to_arrow_table()
    return np.column_stack([column.to_numpy() for column in found.columns])


def build(
    root: Path,
    rows: pa.Table,
    building: Building,
    load_id: str = "load-1",
    operation: str | None = None,
    *,
    marks: Marks | None = None,
    first: int = 0,
    at: CommitHook = lambda point: None,
) -> Table:
    """Writes rows as one load (an append, by that ``operation``), commits it, and opens the table.

    Args:
        root: of the table.
        rows: of the load.
        building: how they are laid out.
        load_id: of the load.
        operation: what the history calls it.
        marks: rows that are deleted in the same commit.
        first: the number of its first block; no other load of the table has one so large.
        at: called at the points of the commit.
    """
    plan, files = building.plan, TableFiles(str(root), key=building.key)
    base = ensure_table_root(files)
    blocks: list[pa.Table] = []
    values: dict[str, Any] = {}
    for value, part in _partitions(rows, plan.partition_by):
        key = partition_key(value) if plan.partition_by else "all"
        values[key] = str(value) if value is not None and not isinstance(value, int | str) else value
        for segment, start in enumerate(range(0, part.num_rows, building.segment_rows)):
            place = Place(files, key, load_id, segment, first + sum(written.num_rows for written in blocks))
            blocks += _write_segment(place, building, part.slice(start, building.segment_rows))
    empty = blocks_with_indexes(plan).empty_table()
    table, indexes = split_indexes(pa.concat_tables([empty, *blocks]))
    entries = partition_entries(table, plan, load_id, values)
    basis = Basis(snapshot=base, operation=operation, marks=marks)
    commit_load(files, Load(basis, plan, load_id, entries, table, [indexes]), at)
    return open_table(str(root), key=building.key)


def _partitions(rows: pa.Table, column: str | None) -> list[tuple[Any, pa.Table]]:
    if column is None:
        return [(None, rows)]
    values = rows[column].to_pylist()
    return [
        (value, rows.filter(pa.array([other == value for other in values])))
        for value in sorted(set(values), key=lambda value: (value is None, value))
    ]


@dataclass(frozen=True)
class Place:
    """Where a segment goes; ``first`` is the first free block number."""

    files: TableFiles
    partition: str
    load_id: str
    segment: int
    first: int


@dataclass(frozen=True)
class Piece:
    """The rows of one file: part of a layout in a segment."""

    layout: int
    part: int
    columns: tuple[str, ...]
    chosen: np.ndarray[Any, Any]


def _write_segment(place: Place, building: Building, rows: pa.Table) -> list[pa.Table]:
    bits = holds(rows, building.conditions)
    found: list[pa.Table] = []
    for piece in _pieces(building.plan, bits):
        free = place.first + sum(written.num_rows for written in found)
        found.append(_write_file(replace(place, first=free), building, piece, rows, bits))
    return found


def _pieces(plan: Plan, bits: np.ndarray[Any, Any]) -> list[Piece]:
    pieces = []
    for number, layout in enumerate(plan.scheme.layouts):
        everywhere = set(layout.columns) == set(layout.master)
        inside = np.ones(len(bits), dtype=bool) if everywhere else bits[:, list(layout.features)].any(axis=1)
        for part, (columns, mask) in enumerate([(layout.columns, inside), (layout.master, ~inside)]):
            if mask.any() and columns:
                pieces.append(Piece(number, part, columns, np.flatnonzero(mask)))
    return pieces


def _write_file(place: Place, building: Building, piece: Piece, rows: pa.Table, bits: np.ndarray[Any, Any]) -> pa.Table:
    """Writes one file with its rows cut into blocks; returns its rows of the table of blocks."""
    plan = building.plan
    local = bits[piece.chosen][:, list(plan.scheme.layouts[piece.layout].features)]
    block_of = building.blocking(rows.take(pa.array(piece.chosen)), local)
    # Each layout in an order of its own.
    within = np.random.default_rng(piece.layout).permutation(len(block_of)) if building.mixed else block_of
    order = np.lexsort((within, block_of))
    tids = piece.chosen[order]
    sizes = np.unique(block_of[order], return_counts=True)[1]
    ids = np.repeat(np.arange(len(sizes)) + place.first, sizes)
    content = rows.select(list(piece.columns)).take(pa.array(tids)).append_column("_block", pa.array(ids))
    if plan.scheme.has_tids:
        content = content.append_column("_tid", pa.array(tids.astype(np.int32)))
    path = data_path(place.partition, place.load_id, piece.layout, place.segment, "a", piece.part)
    stored = Path(place.files.full_path(path))
    stored.parent.mkdir(parents=True, exist_ok=True)
    offsets = np.r_[0, np.cumsum(sizes)]
    options = {"write_page_checksum": True, "encryption_properties": place.files.encryption(path)}
    with pq.ParquetWriter(stored, content.schema, **options) as writer:
        for start, size in zip(offsets[:-1].tolist(), sizes.tolist(), strict=True):
            writer.write_table(content.slice(start, size), row_group_size=size)
    blocks = _block_rows(place, plan, piece, path, content, offsets, bits[tids])
    return _with_footer(blocks, stored, place.files.decryption(path)) if building.footers else blocks


def _with_footer(blocks: pa.Table, path: Path, decryption: Any) -> pa.Table:
    """The blocks with what a load knows of the file's footer and chunks."""
    digest = footer_digest(footer_at_end(path.read_bytes()))
    chunks = list_chunks(pq.read_metadata(path, decryption_properties=decryption))
    known = {
        "footer": [digest] * blocks.num_rows,
        "start": row_group_starts(chunks),
        "bytes": chunks[:, :, 1].sum(axis=1),
    }
    for name, values in known.items():
        place = blocks.schema.get_field_index(name)
        blocks = blocks.set_column(place, blocks.schema.field(name), pa.array(values, blocks.schema.field(name).type))
    return blocks


def _block_rows(
    place: Place, plan: Plan, piece: Piece, path: str, content: pa.Table, offsets: Any, bits: np.ndarray[Any, Any]
) -> pa.Table:
    n, names = len(offsets) - 1, [name for name in plan.schema.names if name in content.column_names]
    sizes = chunk_sizes(Path(place.files.full_path(path)), place.files.decryption(path))
    sums = {
        name: block_sums(content[name], offsets, plan.schema.find(name).type)
        for name in names
        if is_hashable(plan.schema.find(name).type)
    }
    unions = np.array([bits[start:end].any(axis=0) for start, end in itertools.pairwise(offsets)])
    words = pack(unions.reshape(n, len(plan.features)))
    tids = {
        name: sum_with_positions(hashes, Positions(content["_tid"].to_numpy()), offsets)
        for name in (names if "_tid" in content.column_names else [])
        if (hashes := value_hashes(content[name], plan.schema.find(name).type)) is not None
    }
    of_columns = {name: sizes[name] for name in names}
    stats = block_statistics(content.select(names), offsets, plan.schema, of_columns, sums, tids)
    columns: dict[str, Any] = {
        "file": [path] * n,
        "row_group": range(n),
        "block": np.arange(n) + place.first,
        "partition": [place.partition] * n,
        "segment": [place.segment] * n,
        "layout": [piece.layout] * n,
        "part": [piece.part] * n,
        "rows": np.diff(offsets),
        "bytes": np.sum([sizes[name] for name in names], axis=0),
        "tid_bytes": sizes.get("_tid", np.zeros(n, dtype=int)),
        "words": words.view(np.int64).tolist(),
        "footer": [None] * n,
        "start": [None] * n,
        "stats": stats,
    }
    if plan.indexes:
        columns[INDEXES] = measure_indexes(plan.indexes, content, np.asarray(offsets))
    schema = blocks_with_indexes(plan)
    arrays = [
        columns[field.name] if field.name in ("stats", INDEXES) else pa.array(list(columns[field.name]), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def chunk_sizes(path: Path, decryption: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """The compressed bytes of each top-level column in each row group."""
    metadata = pq.read_metadata(path, decryption_properties=decryption)
    names = [name for field in metadata.schema.to_arrow_schema() for name in [field.name] * _leaves(field.type)]
    sizes: dict[str, np.ndarray[Any, Any]] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.row_group(group).num_columns):
            chunk = metadata.row_group(group).column(index)
            name = names[index]  # a path has dots between names that may have some themselves
            sizes.setdefault(name, np.zeros(metadata.num_row_groups, dtype=np.int64))
            sizes[name][group] += chunk.total_compressed_size
    return sizes


def _leaves(type: pa.DataType) -> int:
    """How many columns of Parquet a type is made of."""
    if pa.types.is_map(type):
        return _leaves(type.key_type) + _leaves(type.item_type)
    return sum(_leaves(type.field(k).type) for k in range(type.num_fields)) if pa.types.is_nested(type) else 1
