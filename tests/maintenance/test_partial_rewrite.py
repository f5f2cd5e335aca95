"""Plans of layouts of two plans, and what is known of the blocks that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.blocks import BlockTable
from layoutopt.errors import SchemaError
from layoutopt.maintenance.partial_rewrite import (
    can_mix,
    carry_words,
    missing_layouts,
    mix_plans,
    restrict_to_columns,
    select_layout_blocks,
    to_block_rows,
)
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import pack, unpack
from tests.scan.builder import build, building, by_position, feature_of
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

LETTERS = Schema(tuple(Column(name, "int") for name in "abcd"))
VALUES = tuple(f"a = {value}" for value in range(70))
FEATURES = tuple(feature_of(condition, LETTERS) for condition in VALUES)
"""More than fit into one word."""


def plan_of(conditions: Sequence[int], *layouts: Layout) -> Plan:
    """A plan with some of the features."""
    return building(LETTERS, [VALUES[i] for i in conditions], layouts=layouts or None).plan


def layout(columns: str, *features: int) -> Layout:
    return Layout(tuple(columns), features, tuple(columns))


SOME = st.lists(st.integers(0, len(FEATURES) - 1), unique=True, max_size=len(FEATURES))


@given(st.integers(0, 2**32 - 1), SOME, SOME)
def test_a_bit_of_a_block_that_stays_is_0_only_where_no_row_has_the_feature(
    seed: int, old: list[int], new: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((rng.integers(1, 9), rng.integers(1, 5), len(FEATURES))) < rng.random()  # blocks, rows, features
    unions: Any = rows.any(axis=1)
    # A feature is the same whatever weight a plan gives it.
    before = FeatureSet(tuple(replace(FEATURES[i], weight=3.0) for i in old), SessionSettings())
    after = FeatureSet(tuple(FEATURES[i] for i in new), SessionSettings())
    found = unpack(carry_words(pack(unions[:, old]), before, after), len(new)).astype(bool)
    assert (found >= unions[:, new]).all()
    both = [i for i, feature in enumerate(new) if feature in old]
    assert (found[:, both] == unions[:, [new[i] for i in both]]).all()


def test_a_mixed_plan_has_the_layouts_of_both_by_the_features_that_they_mean() -> None:
    old = plan_of([0, 1, 2], layout("ab", 0, 1), layout("cd", 2))
    fresh = plan_of([3, 1], layout("a", 0, 1), layout("bcd", 1))
    assert can_mix(old, fresh)
    assert missing_layouts(old, fresh) == (0, 1)
    both = mix_plans(old, fresh, (0, 1), (0,))
    assert [one.columns for one in both.scheme.layouts] == [tuple("ab"), tuple("cd"), ("a",)]
    assert [guided_by(both, one) for one in both.scheme.layouts] == [{0, 1}, {2}, {3, 1}]
    assert set(meant(both.features)) == {0, 1, 2, 3}
    # What guides no layout that stays, and is of no use to the fresh plan's queries, is not asked any more.
    assert set(meant(mix_plans(old, fresh, (1,), (0, 1)).features)) == {1, 2, 3}
    assert (both.older_layouts, mix_plans(old, fresh, (1,), (0, 1)).older_layouts) == (2, 1)
    assert missing_layouts(both, fresh) == (1,)
    assert missing_layouts(mix_plans(both, fresh, (2,), (1,)), fresh) == ()
    with pytest.raises(SchemaError, match="column"):
        mix_plans(old, fresh, (0,), (0,))


def guided_by(plan: Plan, layout: Layout) -> set[int]:
    return set(meant(plan.features[i] for i in layout.features))


def meant(features: object) -> list[int]:
    return [FEATURES.index(feature) for feature in features]  # type: ignore[attr-defined]


def test_columns_that_nobody_reads_are_left_where_they_are() -> None:
    in_order = Layout(tuple("cd"), (1,), tuple("cd"), row_order=("d", "c"))
    found = restrict_to_columns(plan_of([0, 1], layout("ab", 0), in_order), {"a", "c"}).scheme.layouts
    assert [(one.columns, one.master, one.features) for one in found[:2]] == [
        (("a",),) * 2 + ((0,),),
        (("c",),) * 2 + ((1,),),
    ]
    assert [one.row_order for one in found] == [(), ("c",), ()]
    assert found[2] == Layout(tuple("bd"), (), tuple("bd"), ByOrder("input"))
    assert len(restrict_to_columns(plan_of([0], layout("ab", 0), layout("cd")), set("ab")).scheme.layouts) == 2
    assert len(restrict_to_columns(plan_of([0], layout("ab", 0), layout("cd")), set("abcd")).scheme.layouts) == 2


def test_layouts_of_the_same_form_are_known() -> None:
    old = plan_of([0, 1], layout("ab", 0), layout("cd", 1))
    fresh = plan_of([1, 0], layout("cd", 0), layout("ab", 1))
    assert missing_layouts(old, fresh) == ()
    assert missing_layouts(old, replace(fresh, block_rows=99)) == (0, 1)
    in_order = Layout(tuple("ab"), (), tuple("ab"), ByOrder("sort", ("a",)))
    assert missing_layouts(old, replace(fresh, scheme=Scheme((fresh.scheme.layouts[0], in_order)))) == (1,)


def test_some_plans_can_not_be_mixed() -> None:
    old, fresh = plan_of([0], layout("ab", 0), layout("cd")), plan_of([1])
    assert can_mix(old, fresh)
    assert not can_mix(fresh, old)  # files of one layout have no positions
    assert not can_mix(old, replace(fresh, segment_rows=5))
    assert not can_mix(old, replace(fresh, partition_by="a"))
    assert isinstance(fresh.features[0], Feature)


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
