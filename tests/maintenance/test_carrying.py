"""Blocks that stay, as rows of the next blocks file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.maintenance.partial_rewrite import select_layout_blocks, to_block_rows
from layoutopt.model.layout import Layout
from tests.scan.builder import build, building, by_position
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


def test_blocks_say_the_same_after_they_were_carried_over(tmp_path: Path) -> None:
    left, right = ("id", "day", "kind"), ("price", "score", "seen", "year")
    layouts = [Layout(left, (0,), left), Layout(right, (1,), right)]
    made = building(SCHEMA, CONDITIONS, layouts=layouts, blocking=by_position(40), footers=True)
    table = build(tmp_path / "t", some_rows(), made)
    blocks = table.catalog.blocks(table.catalog.partitions[0])
    again = BlockTable.from_arrow(to_block_rows(blocks, blocks.words, made.plan), made.plan)
    assert again.block_index.to_pylist() == blocks.block_index.to_pylist()
    for name in SCHEMA.names:
        assert again.statistics(name).to_pylist() == blocks.statistics(name).to_pylist()
    second = select_layout_blocks(blocks, (1,))
    assert second.n == int((blocks.layout == 1).sum())
    assert set(second.layout.tolist()) == {0}
    assert second.has_column("price").all()
    swapped = select_layout_blocks(blocks, (1, 0))
    assert np.array_equal(swapped.layout, 1 - blocks.layout)


def test_what_an_older_file_does_not_say_stays_unknown(tmp_path: Path) -> None:
    made = building(SCHEMA, CONDITIONS, blocking=by_position(100))
    blocks = build(tmp_path / "t", some_rows(), made).sources[0].blocks
    stats = blocks.statistics("price")
    few = pa.StructArray.from_arrays([stats.field("nulls")], ["nulls"], mask=stats.is_null())
    older = BlockTable(
        SCHEMA, len(CONDITIONS), blocks.block_index, lambda i: few if i == 3 else blocks.statistics_of(i)
    )
    again = BlockTable.from_arrow(to_block_rows(older, blocks.words, made.plan), made.plan)
    assert (again.column_bytes("price") == 0).all()
    assert (again.column_sums("price") == -1).all()
    assert again.statistics("id").to_pylist() == blocks.statistics("id").to_pylist()
