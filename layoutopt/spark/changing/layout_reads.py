"""What queries read of a rehearsed table if it had only some of its layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.table import Catalog
from layoutopt.evolve.carrying import in_layouts, listed
from layoutopt.evolve.mixed import carried, under
from layoutopt.features.splits import family_of
from layoutopt.inspect.entry_bytes import entry_bytes
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.query import Query
from layoutopt.model.sequences import spread
from layoutopt.scan.table import Table


def of_layouts(table: Table, layouts: Sequence[int]) -> Table:
    """A rehearsed table of one plan as if it had only some of its layouts, which hold every column; in their order."""
    (source,) = table.sources
    chosen = tuple(replace(source.plan.scheme.layouts[place], serves=None) for place in layouts)
    plan = replace(source.plan, scheme=Scheme(chosen), queries=(), reads=())
    return _of(table, plan, in_layouts(source.blocks, layouts))


def with_features(table: Table, features: FeatureSet) -> Table:
    """A rehearsed table of one plan as if other features had been measured, those that guide its layouts among them."""
    (source,) = table.sources
    plan, blocks = source.plan, source.blocks
    index = blocks.block_index
    words = listed(carried(blocks.words, plan.features, features))
    index = index.set_column(index.schema.get_field_index("words"), "words", words)
    layouts = tuple(under(layout, plan.features, features) for layout in plan.scheme.layouts)
    plan = replace(plan, scheme=Scheme(layouts), features=features)
    return _of(table, plan, replace(blocks, n_features=len(features), block_index=index))


def _of(table: Table, plan: Plan, blocks: BlockTable) -> Table:
    entries = tuple(replace(entry, plan=plan.digest) for entry in table.catalog.partitions)
    return Table(Catalog.rehearsed(replace(table.catalog.snapshot, partitions=entries), plan, blocks))


class LayoutReads:
    """What queries read of a rehearsed table with some layouts of two plans, remembered by what it depends on.

    Args:
        table: with all layouts.
        old: how many are of the older plan, the first ones; all of them are there.
        queries: of which some of each family are looked at.
        most: of a family.
    """

    def __init__(self, table: Table, old: int, queries: Sequence[Query], most: int = 12) -> None:
        self._table, self.old = table, old
        self._layouts = table.sources[0].plan.scheme.layouts
        families: dict[object, list[Query]] = {}
        for query in queries:
            families.setdefault(family_of(query), []).append(query)
        self._families = [(spread(of, most), sum(query.weight for query in of)) for of in families.values()]
        self._known: dict[tuple[int, frozenset[int]], float] = {}
        self._tables: dict[frozenset[int], Table] = {}

    def sets(self) -> list[frozenset[int]]:
        """What may be taken at once: each layout alone, and those of the fresh plan that hold a family's columns."""
        taken = range(self.old, len(self._layouts))
        found = [frozenset((layout,)) for layout in taken]
        for queries, _ in self._families:
            wanted = set(queries[0].columns)
            found.append(frozenset(i for i in taken if wanted & set(self._layouts[i].columns)))
        return [one for one in dict.fromkeys(found) if one]

    def read(self, taken: frozenset[int]) -> float:
        """The bytes that all queries read with these layouts of the fresh plan, about."""
        return sum(self._of_family(number, taken) for number in range(len(self._families)))

    def _of_family(self, number: int, taken: frozenset[int]) -> float:
        columns = set(self._families[number][0][0].columns)
        helping = frozenset(i for i in taken if columns & set(self._layouts[i].columns))
        if (number, helping) not in self._known:
            self._known[number, helping] = self._read_by(self.table(helping), number)
        return self._known[number, helping]

    def _read_by(self, table: Table, number: int) -> float:
        queries, weight = self._families[number]
        read = entry_bytes(table, queries)
        return weight * float(read.weights @ read.read.sum(axis=1)) / float(read.weights.sum())

    def table(self, taken: frozenset[int]) -> Table:
        """The table with some layouts of the fresh plan."""
        if taken not in self._tables:
            self._tables[taken] = of_layouts(self._table, [*range(self.old), *sorted(taken)])
        return self._tables[taken]

    def unread(self, taken: frozenset[int], candidates: Sequence[int]) -> list[int]:
        """Those of some layouts of the older plan without which no family reads more, one after the other."""
        gone: list[int] = []
        for one in candidates:
            left = [place for place in (*range(self.old), *sorted(taken)) if place not in (*gone, one)]
            table = of_layouts(self._table, left)
            if all(self._read_by(table, number) <= self._of_family(number, taken) for number in self._numbers(one)):
                gone.append(one)
        return gone

    def _numbers(self, layout: int) -> list[int]:
        """The families that read a column of a layout."""
        columns = set(self._layouts[layout].columns)
        return [number for number, (queries, _) in enumerate(self._families) if columns & set(queries[0].columns)]

    def bytes_of(self, layout: int) -> float:
        """What a layout takes."""
        blocks = self._table.sources[0].blocks
        return float(blocks.bytes[blocks.layout == layout].sum())
