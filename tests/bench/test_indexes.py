"""The table of indexes: each skips nearly all that can be skipped, and no more than that."""

from __future__ import annotations

import pytest

from layoutopt.bench.indexes import index_figures
from layoutopt.indexes.registry import BUILT_IN


@pytest.mark.long
def test_every_type_skips_what_can_be_skipped() -> None:
    figures = index_figures(blocks=20, block_rows=500)
    assert {figure.index.split(":")[1] for figure in figures} == set(BUILT_IN)
    for figure in figures:
        assert figure.by_bounds <= figure.skipped <= figure.skippable
        assert figure.skipped > 0.7 * figure.skippable, figure.index
        assert figure.block_bytes > 0
        assert figure.row_nanoseconds > 0
