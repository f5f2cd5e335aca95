"""Worlds: a source of generated rows, and the tables into which it is laid out by several methods and partitionings."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table
from tests.hunt.switches import Switches
from tests.hunt.values import FAMILIES, filling, literal
from tests.scan.builder import Blocking, build, building, by_position, by_vector

Bits = np.ndarray[Any, Any]
ROWS = 200
# Each is the name of a column, of fields of structs, and of aliases.
COLLIDING = ("b", "c", "k", "t", "x")
_NAMES = ("a", "d", "e", "order", "value", "Kind", "year", "n 1", "ünï", "it's", "date", "r", "s", "v", "w", "z", "_m")
# Not "b.c": beside a struct `b` with a field `c` that is one path to Spark, and refused.
_ODD_NAMES = ("p.q", "a`b", "b.0", '"q"', "a\nb")
_PARTITIONING = ("string", "digits", "int", "tinyint", "date", "timestamp", "timestamp_ntz", "boolean", "decimal(5,2)")
_ZONES = ("UTC", "UTC", "UTC", "Europe/Berlin", "America/New_York")


@dataclass(frozen=True)
class Given:
    """A column of a source: its name, its family of values (of a struct: its fields), and literals of its values."""

    name: str
    family: str
    fields: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """Spark's type."""
        if self.fields:
            return f"struct<{','.join(f'{name}:int' for name in self.fields)}>"
        return FAMILIES[self.family].type

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""
        if self.fields:
            return pa.struct([(name, pa.int32()) for name in self.fields])
        return FAMILIES[self.family].arrow


@dataclass(frozen=True)
class World:
    """A source: its rows in the order of ``id``, and what is known of its columns."""

    seed: int
    given: tuple[Given, ...]
    rows: pa.Table
    zone: str
    switches: Switches

    @property
    def schema(self) -> Schema:
        """The columns with Spark's types."""
        return Schema(tuple(Column(each.name, each.type) for each in self.given))


@dataclass(frozen=True)
class Laid:
    """A table of a world, and by what method and partition column it was made."""

    table: Table
    method: str
    partition_by: str | None

    @property
    def root(self) -> str:
        """Its folder."""
        return str(self.table.catalog.files.root)

    def __str__(self) -> str:
        return f"{self.method} partitioned by {self.partition_by!r}"


def make_world(seed: int, switches: Switches, rows: int = ROWS) -> World:
    """The world of a seed."""
    rng = random.Random(f"world {seed}")
    names = [*rng.sample(_NAMES, 10), *(rng.sample(_ODD_NAMES, 2) if switches.odd_names else [])]
    families = rng.sample([*FAMILIES, "string", "int", "date"], len(names))
    given = [Given("id", "int"), *(Given(name, family) for name, family in zip(names, families, strict=True))]
    colliding = rng.sample(COLLIDING, 4)
    given += [Given(name, "int") for name in colliding[:2]]
    given += [Given(name, "", tuple(rng.sample(COLLIDING, 3))) for name in colliding[2:]]
    columns = {each.name: _column(each, rows, rng) for each in given}
    known = tuple(replace(each, own=_own(columns[each.name], each.family)) for each in given)
    table = pa.table({each.name: pa.array(columns[each.name], each.arrow) for each in known})
    return World(seed, known, table, rng.choice(_ZONES), switches)


def _column(given: Given, rows: int, rng: random.Random) -> list[Any]:
    if given.name == "id":
        return list(range(rows))
    if given.fields:
        structs = [{name: rng.choice([None, *range(8)]) for name in given.fields} for _ in range(rows)]
        return [None if rng.random() < 0.1 else struct for struct in structs]
    edges = FAMILIES[given.family].edges
    values = rng.sample(list(edges), min(len(edges), rng.randint(2, 10)))
    values += [filling(given.family, rng) for _ in range(rng.choice([0, 3, 12]))]
    kind = rng.choice(["in order", "runs", "scattered"])
    if kind == "in order" and given.family not in ("array<int>", "map<string,int>"):
        values = pa.array(values, given.arrow).take(pc.sort_indices(pa.array(values, given.arrow))).to_pylist()
    chosen = [
        rng.choice(values) if kind == "scattered" else values[place * len(values) // rows] for place in range(rows)
    ]
    nulls = rng.choice([0.0, 0.05, 0.4])
    start = rng.choice([rows, rng.randrange(rows)])  # where a run of NULLs begins, so that whole blocks are NULL
    return [
        None if start <= place < start + rows // 3 or rng.random() < nulls else value
        for place, value in enumerate(chosen)
    ]


def _own(values: Sequence[Any], family: str) -> tuple[str, ...]:
    """Literals of the values that a column has; floats are told apart by their texts."""
    if not family:
        return ()
    return tuple(dict.fromkeys(text for value in values if (text := literal(value, family)) is not None))


def by_order(column: str, block_rows: int) -> Blocking:
    """Blocks of rows that follow each other in the order of a column."""

    def blocking(rows: pa.Table, bits: Bits) -> Bits:
        rank = np.empty(rows.num_rows, dtype=np.int64)
        rank[pc.sort_indices(rows, [(column, "ascending")]).to_numpy()] = np.arange(rows.num_rows)
        return rank // block_rows

    return blocking


def by_bits(block_rows: int) -> Blocking:
    """Blocks of rows in the order of their features."""

    def blocking(rows: pa.Table, bits: Bits) -> Bits:
        order = np.lexsort([~bits[:, k] for k in range(bits.shape[1])][::-1]) if bits.shape[1] else np.arange(len(bits))
        rank = np.empty(len(bits), dtype=np.int64)
        rank[order] = np.arange(len(bits))
        return rank // block_rows

    return blocking


Made = tuple[Blocking, list[Layout] | None]
Method = Callable[[World, int, random.Random], Made]


def _sop(world: World, features: int, rng: random.Random) -> Made:
    return by_vector, None


def _input_order(world: World, features: int, rng: random.Random) -> Made:
    return by_position(rng.choice([7, 15, 30])), None


def _sort(world: World, features: int, rng: random.Random) -> Made:
    names = [each.name for each in world.given if each.family and "<" not in each.family]
    return by_order(rng.choice(names), rng.choice([7, 15, 30])), None


def _predicate_sort(world: World, features: int, rng: random.Random) -> Made:
    return by_bits(rng.choice([7, 15])), None


def _gsop(world: World, features: int, rng: random.Random) -> Made:
    names = list(world.schema.names)
    rng.shuffle(names)
    groups = [tuple(names[k::3]) for k in range(3)]
    return by_vector, [Layout(g, tuple(range(features))[k::3], g, ByVectors()) for k, g in enumerate(groups)]


def _gsop_r(world: World, features: int, rng: random.Random) -> Made:
    """A layout of all columns but some, and one that repeats columns for the rows of a few features."""
    names = world.schema.names
    apart = tuple(rng.sample(names[1:], 3))
    most = tuple(name for name in names if name not in apart)
    repeated = tuple(dict.fromkeys(["id", *rng.sample(most, 4), *apart]))
    local = tuple(range(features))
    return by_vector, [Layout(most, local[2:], most, ByVectors()), Layout(repeated, local[:2], apart, ByVectors())]


def _gsop_r_copy(world: World, features: int, rng: random.Random) -> Made:
    """A layout of everything, and a copy of some columns for the rows of two features."""
    names = world.schema.names
    copied = tuple(dict.fromkeys(["id", *rng.sample(names, 8)]))
    return by_position(15), [Layout(names, (), names, ByVectors()), Layout(copied, (0, 1), (), ByVectors())]


METHODS: Mapping[str, Method] = {
    "sop": _sop, "gsop": _gsop, "gsop-r": _gsop_r, "gsop-r of a copy": _gsop_r_copy, "input-order": _input_order,
    "sort": _sort, "predicate-sort": _predicate_sort,
}  # fmt: skip


def lay_out(world: World, root: Path, method: str, conditions: Sequence[str], matches: Bits, number: int = 0) -> Laid:
    """A table with a feature for each condition.

    Args:
        world: the source.
        root: the table's folder.
        method: one of :data:`METHODS`.
        conditions: of the features.
        matches: for which rows the conditions are TRUE, by Spark; bool[rows, conditions].
        number: another number makes another table.
    """
    rng = random.Random(f"{world.seed} {method} {number}")
    blocking, layouts = METHODS[method](world, len(conditions), rng)
    fit = [each.name for each in world.given[1:] if each.family in _PARTITIONING]
    partition_by = rng.choice(fit) if fit and rng.random() < 0.6 else None
    settings = SessionSettings(time_zone=world.zone)
    made = building(
        world.schema, conditions, blocking=blocking, layouts=layouts, partition_by=partition_by, settings=settings,
        segment_rows=rng.choice([60, 100, 1000]),
    )  # fmt: skip
    ids = [", ".join(map(str, np.flatnonzero(matches[:, k]))) for k in range(len(conditions))]
    made = replace(made, conditions=tuple(f"id IN ({of or -1})" for of in ids))
    return Laid(build(root, world.rows, made), method, partition_by)
