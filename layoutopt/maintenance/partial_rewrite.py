"""Blocks that stay where they are while others of their entry are written anew: rows of the next blocks file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import column_statistics_type
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.predicates import Predicate
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import pack, unpack, words_for


def in_layouts(blocks: BlockTable, layouts: Sequence[int]) -> BlockTable:
    """The blocks of some layouts, which then are the layouts 0, 1, ... in the order given."""
    place = np.full(max(blocks.layout.max(initial=-1), max(layouts, default=-1)) + 1, -1, dtype=np.int16)
    place[list(layouts)] = np.arange(len(layouts))
    part = blocks.take(place[blocks.layout] >= 0)
    index = part.block_index
    moved = pa.array(place[part.layout], index.schema.field("layout").type)
    return replace(part, block_index=index.set_column(index.schema.get_field_index("layout"), "layout", moved))


def as_rows(blocks: BlockTable, words: Words, plan: Plan) -> pa.Table:
    """Blocks of an opened table as rows of a blocks file.

    Args:
        blocks: without deleted rows.
        words: their union vectors under the features of ``plan``, ``uint64[n, w]``.
        plan: of the same columns, whose layouts the blocks name.
    """
    schema = block_schema(plan.schema, words_for(len(plan.features)))
    index = blocks.block_index
    columns = {name: index[name] for name in index.column_names}
    columns |= {"words": listed(words), "stats": _statistics(blocks, plan.schema)}
    arrays = [columns[of.name].cast(of.type) for of in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def listed(words: Words) -> pa.Array:
    """Union vectors, ``uint64[n, w]``, as the catalog lists them."""
    bits = pa.array(words.view(np.int64).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(bits, words.shape[1]).cast(pa.list_(pa.int64()))


def _statistics(blocks: BlockTable, schema: Schema) -> pa.StructArray:
    children = [
        _of_type(blocks.statistics(column.name), column_statistics_type(column.type)) for column in schema.columns
    ]
    return pa.StructArray.from_arrays(children, [f"c{i}" for i in range(len(children))])


def _of_type(statistics: pa.StructArray, type: pa.StructType) -> pa.StructArray:
    """Statistics with all members that are written today: those that an older file lacks are unknown."""
    members = [
        pa.nulls(len(statistics), member.type)
        if statistics.type.get_field_index(member.name) < 0
        else statistics.field(statistics.type.get_field_index(member.name)).cast(member.type)
        for member in type
    ]
    return pa.StructArray.from_arrays(members, fields=list(type), mask=statistics.is_null())


# ----------------------------------------------------------------------------------------------------
# Plans that keep some layouts of an older plan and take others of a fresh one: what a segment has of both.
#
# Blocks that stay know the features of the older plan. A feature that is new is unknown of them, which means: might
# match. So the bits of blocks are carried over by their features, and all others are 1 until somebody measures them.

_Meaning = tuple[Predicate, ...]


def can_be_mixed(old: Plan, fresh: Plan) -> bool:
    """Whether layouts of a fresh plan can stand beside those of an older one, in one segment.

    Rows of several layouts are put together by their positions, which files of a single layout don't have.
    """
    alike = ("table", "schema", "partition_by", "settings", "segment_rows", "codec", "indexes")
    return old.scheme.has_tids and not old.indexes and all(getattr(old, of) == getattr(fresh, of) for of in alike)


def of_columns(plan: Plan, columns: Collection[str]) -> Plan:
    """The plan whose layouts hold only some columns, and one more, of the source's order, those that none holds then.

    What no query reads need not be written again where another layout has it.
    """
    held = [
        replace(layout, columns=of, master=_among(layout.master, columns), row_order=_among(layout.row_order, columns))
        for layout in plan.scheme.layouts
        if (of := _among(layout.columns, columns))
    ]
    rest = tuple(name for name in plan.schema.names if name not in columns)
    layouts = [*held, Layout(rest, (), rest, ByOrder("input"))] if rest else held
    return replace(plan, scheme=Scheme(tuple(layouts)))


def _among(names: Sequence[str], columns: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in columns)


def lacked(old: Plan, fresh: Plan) -> tuple[int, ...]:
    """The layouts of a fresh plan, by their places, that an older one has not in the same form."""
    there = {_form(old, layout) for layout in old.scheme.layouts}
    return tuple(i for i, layout in enumerate(fresh.scheme.layouts) if _form(fresh, layout) not in there)


def mixed(old: Plan, fresh: Plan, kept: Collection[int], taken: Collection[int]) -> Plan:
    """The plan with some layouts of an older plan, first, and some of a fresh one, each in their order.

    It has the features by which kept layouts were blocked, and all of the fresh plan, whose queries it is for.

    Args:
        old: the older plan.
        fresh: the fresh one, see :func:`can_be_mixed`.
        kept: places of layouts of the older plan.
        taken: places of layouts of the fresh one.

    Raises:
        SchemaError: a column would be in no layout.
        ValueError: a column would be master in no layout.
    """
    wanted = {_meaning(feature) for feature in fresh.features}
    guiding = {index for place in kept for index in old.scheme.layouts[place].guiding}
    of_old = [feature for i, feature in enumerate(old.features) if i in guiding or _meaning(feature) in wanted]
    known = {_meaning(feature) for feature in of_old}
    features = (*of_old, *(feature for feature in fresh.features if _meaning(feature) not in known))
    both = FeatureSet(features, fresh.settings)
    # What the older layouts serve was said of other queries: whoever reads their columns.
    layouts = [replace(under(old.scheme.layouts[i], old.features, both), serves=None) for i in sorted(kept)]
    layouts += [under(fresh.scheme.layouts[i], fresh.features, both) for i in sorted(taken)]
    return replace(fresh, features=both, scheme=Scheme(tuple(layouts)), reads=(), older_layouts=len(kept))


def carried(words: Words, old: FeatureSet, new: FeatureSet) -> Words:
    """Union vectors under other features: the bits of features that both have, and 1 for those that were not measured.

    Args:
        words: of blocks, ``uint64[n, w]``.
        old: the features that they are of.
        new: those that they are to be of.
    """
    bits = np.ones((len(words), len(new)), dtype=np.bool_)
    before = _places(old, new)
    known = before >= 0
    bits[:, known] = unpack(words, len(old))[:, before[known]].astype(np.bool_)
    return pack(bits)


def _places(old: FeatureSet, new: FeatureSet) -> Ints:
    """Of each new feature its place among the old ones, -1 where it is not among them, ``int64[new]``."""
    place = {_meaning(feature): i for i, feature in enumerate(old)}
    return np.array([place.get(_meaning(feature), -1) for feature in new], dtype=np.int64)


def under(layout: Layout, old: FeatureSet, new: FeatureSet) -> Layout:
    """A layout by the same features among others, which have them."""
    features, guides = (tuple(new.places(old.only(of))) for of in (layout.features, layout.guides))
    return replace(layout, features=features, guides=guides)


def _form(plan: Plan, layout: Layout) -> tuple[object, ...]:
    """What makes two layouts of two plans store the same, and skip alike."""

    def meanings(indexes: Sequence[int]) -> frozenset[_Meaning]:
        return frozenset(_meaning(plan.features[index]) for index in indexes)

    columns = frozenset(layout.columns), frozenset(layout.master), layout.row_order
    return *columns, layout.blocking, meanings(layout.features), meanings(layout.guides), plan.block_rows


def _meaning(feature: Feature) -> _Meaning:
    """What a feature says of a row; its weight may differ between plans."""
    return feature.predicates
