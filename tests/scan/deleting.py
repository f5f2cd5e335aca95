"""Rows of a table deleted by vectors, found row by row in its files: independent of how `delete` finds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.deletion_vectors import Marks, commit_deletes, pack_positions, unpack_positions, vectors_of
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.optimistic_commit import CommitHook
from layoutopt.catalog.partition_entry import Deletes, PartitionEntry
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.table import Catalog
from layoutopt.evaluation.checksum import hash_array
from layoutopt.scan.table import Table, open_table

Where = tuple[str, int, int]
"""A block's file, its row group, and its number."""


def delete_ids(root: str, ids: Collection[int], at: CommitHook = lambda point: None, wrong_sums: bool = False) -> Table:
    """Delete the rows with some ids, each of which is unique; the table afterwards.

    Args:
        root: the table.
        ids: of the rows.
        at: called at the points of the commit.
        wrong_sums: whether to say other checksums than those of the rows.
    """
    catalog = Catalog.open(root)
    marks = marks_of(catalog, ids, wrong_sums)
    if marks.deleted:
        commit_deletes(catalog.files, catalog.snapshot, new_load_id(), marks, at=at)
    return open_table(root)


def marks_of(catalog: Catalog, ids: Collection[int], wrong_sums: bool = False) -> Marks:
    """What a delete of the rows with some ids commits."""
    vectors: dict[int, bytes] = {}
    deleted = {}
    for entry in catalog.partitions:
        places, sums, rows = _found(catalog, entry, set(ids))
        before = vectors_of(catalog.blocks(entry))
        if not rows:
            continue
        old = entry.deletes or Deletes("", 0, dict.fromkeys(entry.checksums, 0))
        sums = {name: old.checksums[name] + sums[name] + wrong_sums for name in old.checksums}
        deleted[entry.key, entry.load_id] = Content(old.rows + rows, sums)
        for block in places.keys() | before.keys():
            known = unpack_positions(before[block]) if block in before else np.zeros(0, np.int64)
            vectors[block] = pack_positions(np.union1d(known, np.array(places.get(block, []), np.int64)))
    return Marks(deleted, vectors)


def _found(catalog: Catalog, entry: PartitionEntry, ids: set[int]) -> tuple[dict[int, list[int]], dict[str, int], int]:
    """The places of an entry's rows with some ids in each block, their checksums, and how many they are."""
    blocks, plan = catalog.blocks(entry), catalog.plans[entry.plan]
    gone = {block: set(unpack_positions(vector).tolist()) for block, vector in vectors_of(blocks).items()}
    content = [
        pq.ParquetFile(
            catalog.files.full_path(path := blocks.files[blocks.file[i]]),
            decryption_properties=catalog.files.decryption(path),
        ).read_row_group(int(blocks.row_group[i]))
        for i in range(blocks.n)
    ]
    tids: dict[int, set[int]] = defaultdict(set)
    for i, rows in enumerate(content):
        if "id" in rows.column_names:
            dead = gone.get(int(blocks.block_id[i]), set())
            chosen = [k for k, id in enumerate(rows["id"].to_pylist()) if id in ids and k not in dead]
            names = rows["_tid"].to_pylist() if plan.scheme.has_tids else chosen
            tids[int(blocks.segment[i])] |= {names[k] for k in chosen} if plan.scheme.has_tids else set()
    places: dict[int, list[int]] = {}
    sums: dict[str, int] = defaultdict(int)
    count = 0
    for i, rows in enumerate(content):
        number, layout = int(blocks.block_id[i]), plan.scheme.layouts[int(blocks.layout[i])]
        if plan.scheme.has_tids:
            here = [k for k, tid in enumerate(rows["_tid"].to_pylist()) if tid in tids[int(blocks.segment[i])]]
        else:
            dead = gone.get(number, set())
            here = [k for k, id in enumerate(rows["id"].to_pylist()) if id in ids and k not in dead]
        if not here:
            continue
        places[number] = here
        count += len(here) if "id" in layout.master else 0
        for name in layout.master:
            sums[name] += _sum(rows[name].take(pa.array(here)), plan.schema.find(name).type)
    return places, dict(sums) | {name: 0 for name in entry.checksums if name not in sums}, count


def _sum(values: pa.ChunkedArray, type: str) -> int:
    return sum(int(hash_array(chunk, type).astype(np.int64).sum()) for chunk in values.chunks)


def kept(rows: pa.Table, ids: Collection[int]) -> pa.Table:
    """The rows without those that are deleted."""
    return rows.filter(pa.array([id not in set(ids) for id in rows["id"].to_pylist()], pa.bool_()))


def vectors_file(table: Table) -> Any:
    """The path of the file with a table's vectors."""
    (path,) = {entry.deletes.file for entry in table.catalog.partitions if entry.deletes is not None}
    return table.catalog.files.full_path(path)
