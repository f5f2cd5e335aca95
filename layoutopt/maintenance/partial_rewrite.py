"""Mix the layouts of an older plan with those of a fresh one, and carry kept blocks into the next blocks file.

Kept blocks know the features of the older plan. The bits of features that both plans have are carried over; all other
bits are 1, which means that the block may match, until they are measured.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import column_statistics_type
from layoutopt.model.arrays import Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.predicates import Predicate
from layoutopt.model.vectors import pack, unpack, words_for


def select_layout_blocks(blocks: BlockTable, layouts: Sequence[int]) -> BlockTable:
    """Return the blocks of some layouts, which are renumbered 0, 1, ... in the given order."""
    number = np.full(max(blocks.layout.max(initial=-1), max(layouts, default=-1)) + 1, -1, dtype=np.int16)
    number[list(layouts)] = np.arange(len(layouts))
    selected = blocks.take(number[blocks.layout] >= 0)
    index = selected.block_index
    numbers = pa.array(number[selected.layout], index.schema.field("layout").type)
    return replace(selected, block_index=index.set_column(index.schema.get_field_index("layout"), "layout", numbers))


def to_block_rows(blocks: BlockTable, words: Words, plan: Plan) -> pa.Table:
    """Return blocks of an opened table as rows of a blocks file.

    Args:
        blocks: without deleted rows.
        words: their union vectors under the features of ``plan``, ``uint64[n, w]``.
        plan: the plan whose layouts the blocks name; it has the same columns.
    """
    schema = block_schema(plan.schema, words_for(len(plan.features)))
    index = blocks.block_index
    columns = {name: index[name] for name in index.column_names}
    statistics = [
        _conform_statistics(blocks.statistics(column.name), column_statistics_type(column.type))
        for column in plan.schema.columns
    ]
    names = [f"c{i}" for i in range(len(statistics))]
    columns |= {"words": to_word_lists(words), "stats": pa.StructArray.from_arrays(statistics, names)}
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def to_word_lists(words: Words) -> pa.Array:
    """Return union vectors, ``uint64[n, w]``, as the catalog's lists."""
    bits = pa.array(words.view(np.int64).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(bits, words.shape[1]).cast(pa.list_(pa.int64()))


def _conform_statistics(statistics: pa.StructArray, type: pa.StructType) -> pa.StructArray:
    """Return statistics with all current members; those that an older file lacks are NULL."""
    members = [
        pa.nulls(len(statistics), member.type)
        if statistics.type.get_field_index(member.name) < 0
        else statistics.field(statistics.type.get_field_index(member.name)).cast(member.type)
        for member in type
    ]
    return pa.StructArray.from_arrays(members, fields=list(type), mask=statistics.is_null())


# What a feature means; its weight may differ between plans.
_Meaning = tuple[Predicate, ...]


def can_mix(old: Plan, fresh: Plan) -> bool:
    """Return whether a segment can have layouts of both plans; the files of the older plan must have row positions."""
    names = ("table", "schema", "partition_by", "settings", "segment_rows", "codec", "indexes")
    return old.scheme.has_tids and not old.indexes and all(getattr(old, name) == getattr(fresh, name) for name in names)


def restrict_to_columns(plan: Plan, columns: Collection[str]) -> Plan:
    """Return the plan with only some columns in its layouts; the others go to one more layout in the source's order.

    So columns that no query reads need not be written again if an older layout has them.
    """

    def restrict(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in columns)

    layouts = [
        replace(layout, columns=names, master=restrict(layout.master), row_order=restrict(layout.row_order))
        for layout in plan.scheme.layouts
        if (names := restrict(layout.columns))
    ]
    rest = tuple(name for name in plan.schema.names if name not in columns)
    if rest:
        layouts.append(Layout(rest, (), rest, ByOrder("input")))
    return replace(plan, scheme=Scheme(tuple(layouts)))


def missing_layouts(old: Plan, fresh: Plan) -> tuple[int, ...]:
    """Return the indexes of the fresh plan's layouts that the older plan does not have in the same form."""
    forms = {_describe_layout(old, layout) for layout in old.scheme.layouts}
    return tuple(i for i, layout in enumerate(fresh.scheme.layouts) if _describe_layout(fresh, layout) not in forms)


def mix_plans(old: Plan, fresh: Plan, kept: Collection[int], taken: Collection[int]) -> Plan:
    """Return the plan with some layouts of an older plan, followed by some of a fresh one.

    It has all features of the fresh plan, and those that guide the kept layouts.

    Args:
        fresh: the fresh plan, see :func:`can_mix`.
        kept: indexes of layouts of the older plan.
        taken: indexes of layouts of the fresh plan.

    Raises:
        SchemaError: a column would be in no layout.
        ValueError: a column would be master in no layout.
    """
    fresh_meanings = {feature.predicates for feature in fresh.features}
    guiding = {index for i in kept for index in old.scheme.layouts[i].guiding}
    old_features = [
        feature for i, feature in enumerate(old.features) if i in guiding or feature.predicates in fresh_meanings
    ]
    known = {feature.predicates for feature in old_features}
    features = (*old_features, *(feature for feature in fresh.features if feature.predicates not in known))
    both = FeatureSet(features, fresh.settings)
    # The queries that the older layouts serve were those of the older plan.
    layouts = [replace(renumber_features(old.scheme.layouts[i], old.features, both), serves=None) for i in sorted(kept)]
    layouts += [renumber_features(fresh.scheme.layouts[i], fresh.features, both) for i in sorted(taken)]
    return replace(fresh, features=both, scheme=Scheme(tuple(layouts)), reads=(), older_layouts=len(kept))


def carry_words(words: Words, old: FeatureSet, new: FeatureSet) -> Words:
    """Return union vectors under other features: the bits of common features, and 1 for features not yet measured.

    Args:
        words: union vectors of blocks, ``uint64[n, w]``.
        old: their features.
        new: the wanted features.
    """
    bits = np.ones((len(words), len(new)), dtype=np.bool_)
    old_index = {feature.predicates: i for i, feature in enumerate(old)}
    indexes = np.array([old_index.get(feature.predicates, -1) for feature in new], dtype=np.int64)
    known = indexes >= 0
    bits[:, known] = unpack(words, len(old))[:, indexes[known]].astype(np.bool_)
    return pack(bits)


def renumber_features(layout: Layout, old: FeatureSet, new: FeatureSet) -> Layout:
    """Return a layout with its features numbered as in another set, which contains them."""
    features, guides = (tuple(new.places(old.only(indexes))) for indexes in (layout.features, layout.guides))
    return replace(layout, features=features, guides=guides)


def _describe_layout(plan: Plan, layout: Layout) -> tuple[object, ...]:
    """Return a key that is equal for layouts, of any plan, that store and skip the same."""

    def meanings(indexes: Sequence[int]) -> frozenset[_Meaning]:
        return frozenset(plan.features[index].predicates for index in indexes)

    columns = frozenset(layout.columns), frozenset(layout.master), layout.row_order
    return *columns, layout.blocking, meanings(layout.features), meanings(layout.guides), plan.block_rows
