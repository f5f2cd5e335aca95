"""Layouts, schemes and plans: how a load stores a table (Sun 2017, 5.4.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import isfinite
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, get_args

from layoutopt.errors import SchemaError
from layoutopt.model.documents import LARGEST_COUNT, Codec, Document, ParquetIndex, round_figure
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.query import Query
from layoutopt.model.records import As, Form, LazyTuple, Record, from_json
from layoutopt.model.schema import Schema
from layoutopt.model.summary import Summarised
from layoutopt.model.values import key_kind

ORDERS: Final = ("input", "sort", "range", "zorder", "hilbert", "predicate-sort")
_DIGEST_CHARACTERS: Final = 16

_Parameter = float | int | str


def _params(members: Mapping[str, _Parameter]) -> tuple[tuple[str, _Parameter], ...]:
    if not all(isinstance(value, str) or isfinite(value) for value in members.values()):
        raise ValueError("not all numbers are finite")
    return tuple(members.items())


Params = Annotated[tuple[tuple[str, _Parameter], ...], As(Mapping[str, _Parameter], _params, dict)]


# The parameter of a ByVectors layout that overrides the minimum derived from ``block_rows``.
MIN_ROWS = "min_rows"

# The parameter of a ByVectors layout that names the column by which a vector that fills several blocks is cut.
CUT_BY = "cut_by"
WEIGHTS = "weights"

# The parameter of a ByCuts layout: the number of ranges of about equal rows that a column may also be cut into.
QUANTILES = "quantiles"

# The order of rows by their feature bits, the heaviest feature first.
PREDICATE_SORT = "predicate-sort"


@dataclass(frozen=True)
class ByVectors(Record):
    """Blocking by feature vectors: the partitioner ``algorithm`` maps vectors to blocks (3.4)."""

    algorithm: str = "ward"
    params: Params = ()
    form: ClassVar = Form(constants={"by": "vectors"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(sorted(self.params)))


@dataclass(frozen=True)
class ByOrder(Record):
    """Blocking by an order of the rows, one of :data:`ORDERS`, cut into equal blocks; ``input`` has no columns."""

    kind: str
    columns: tuple[str, ...] = ()
    params: Params = ()
    form: ClassVar = Form(constants={"by": "order"})

    def __post_init__(self) -> None:
        if self.kind not in ORDERS:
            raise ValueError(f"unknown order of rows {self.kind!r}: expected one of {', '.join(ORDERS)}")
        if self.kind not in ("input", "predicate-sort") and not self.columns:
            raise ValueError(f"the order {self.kind!r} has no columns; name at least one")
        object.__setattr__(self, "params", tuple(sorted(self.params)))


@dataclass(frozen=True)
class ByCuts(Record):
    """Blocking by cuts: a tree over values of columns and the layout's features, computed from each segment's rows."""

    columns: tuple[str, ...] = ()
    params: Params = ()
    form: ClassVar = Form(constants={"by": "cuts"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(sorted(self.params)))


Blocking = ByVectors | ByOrder | ByCuts


@dataclass(frozen=True)
class Layout(Record):
    """One copy of some columns, with its own blocking.

    Attributes:
        features: its local features (the mask vector of 4.6.1): indexes of those that guided the blocking, ascending.
        master: the columns that it stores for all rows. It stores the others only for rows for which one of its local
            features may be TRUE (5.4.1).
        blocking: how rows become blocks.
        guides: features that guide the blocking too, but don't decide which rows the layout holds. The text has one set
            of local features for both; a copy of the few rows of a general feature could then not be cut by others.
            With guides, rows without a local feature are always kept apart, even if all columns are master.
        serves: indexes of the plan's training queries that the blocking is for; None for every query that reads a
            column of the layout. Where layouts overlap, a query reads its columns from some of them only.
        row_order: the columns by which the rows of each block are sorted, the first one first: ascending in Spark's
            order of values, NULLs first, ties in the blocking's order. None keeps the blocking's order.
    """

    columns: tuple[str, ...]
    features: tuple[int, ...] = ()
    master: tuple[str, ...] = ()
    blocking: Blocking = field(default_factory=ByVectors)
    guides: tuple[int, ...] = ()
    serves: tuple[int, ...] | None = None
    row_order: tuple[str, ...] = ()
    form: ClassVar = Form(left_out=("guides", "serves", "row_order"))

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a layout names a column twice: {', '.join(self.columns)}; name each once")
        missing = [name for name in self.master if name not in self.columns]
        if missing:
            raise ValueError(f"the master column {missing[0]!r} is not stored in its layout; add it to the columns")
        for i, name in enumerate(self.row_order):
            if name not in self.columns:
                raise ValueError(f"the row order's column {name!r} is not stored in its layout; leave it out")
            if name in self.row_order[:i]:
                raise ValueError(f"the row order names the column {name!r} twice; name it once")
        for name in ("features", "guides", "serves"):
            indexes = getattr(self, name)
            if indexes is None:
                continue
            if any(index < 0 for index in indexes):
                raise ValueError(f"a layout has the {name} {indexes}; give indexes from 0")
            object.__setattr__(self, name, tuple(sorted(set(indexes))))

    @property
    def guiding(self) -> tuple[int, ...]:
        """Return the features that guide the blocking, ascending."""
        return tuple(sorted({*self.features, *self.guides}))

    @property
    def ordering_columns(self) -> tuple[str, ...]:
        """Return the columns whose values order or cut the rows, without those of features and queries."""
        if isinstance(self.blocking, ByVectors):
            cut = dict(self.blocking.params).get(CUT_BY)
            return self.row_order if cut is None else (str(cut), *self.row_order)
        return (*self.blocking.columns, *self.row_order)

    @property
    def is_undivided(self) -> bool:
        """Return whether all rows are stored and blocked together, with or without local features."""
        return set(self.columns) == set(self.master) and not self.guides


@dataclass(frozen=True)
class Scheme(Record):
    """The layouts of a table (5.4.1): one for SOP, disjoint for GSOP, overlapping for GSOP-R.

    Every column is master in some layout; else rows of it would be lost.
    """

    layouts: tuple[Layout, ...]
    form: ClassVar = Form(bare=True)

    def __post_init__(self) -> None:
        if not self.layouts:
            raise ValueError("a scheme has no layout; give at least one")
        if not all(layout.columns for layout in self.layouts):
            raise ValueError("a layout of a scheme stores no column; give it one, or leave it out")
        master = {name for layout in self.layouts for name in layout.master}
        incomplete = self.columns - master
        if incomplete:
            raise ValueError(f"the column {min(incomplete)!r} is master in no layout; make it master in one")

    @property
    def has_tids(self) -> bool:
        """Return whether rows carry tids, by which several layouts are joined."""
        return len(self.layouts) > 1

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return every stored column."""
        return frozenset(name for layout in self.layouts for name in layout.columns)


CODECS: Final = get_args(Codec)
PARQUET_INDEXES: Final = get_args(ParquetIndex)


def compute_digest(data: bytes) -> str:
    """Return the name of a plan with these bytes."""
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


# The minimum of each count in a plan.
_LEAST: Final = MappingProxyType({"block_rows": 1, "segment_rows": 1, "max_vectors": 1, "seed": 0, "older_layouts": 0})


@dataclass(frozen=True, repr=False)
class Plan(Document, Summarised):
    """The layout that a load applies to every partition of a table. It holds no blocking map.

    Attributes:
        table: the table's name in queries.
        schema: the source's columns, exactly those of the scheme's layouts.
        partition_by: the column whose values are the partitions, if any.
        method: the method's name on the command line.
        features: the features; feature *i* is bit *i*.
        queries: the training queries (weights are counted per segment from them).
        block_rows, segment_rows: the mean rows of a block, and the most of a segment.
        max_vectors: the most distinct vectors of a segment; rarer ones are merged into their nearest.
        settings: of the session; those of the features.
        predicted: the search's own figures, rounded so that they are the same on every machine.
        reads: the share of its columns' bytes that each of ``queries`` is predicted to read; empty if unknown.
        file_bytes: the size at which a data file is full; None for no limit.
        older_layouts: how many of the first layouts are older: a partial rewrite added the others to the partition.
    """

    table: str
    schema: Schema
    partition_by: str | None
    method: str
    features: FeatureSet
    queries: tuple[Query, ...]
    scheme: Scheme
    block_rows: int
    segment_rows: int
    max_vectors: int
    seed: int
    codec: str = "zstd"
    settings: SessionSettings = field(default_factory=SessionSettings)
    predicted: Mapping[str, float] = field(default_factory=dict)
    reads: tuple[float, ...] = ()
    indexes: tuple[IndexSpec, ...] = ()
    file_bytes: int | None = None
    parquet_indexes: tuple[str, ...] = ()
    older_layouts: int = 0
    form: ClassVar = Form(
        constants={"format": "layoutopt-plan", "version": 1},
        left_out=("reads", "indexes", "file_bytes", "parquet_indexes", "older_layouts"),
    )

    def __post_init__(self) -> None:
        for name, minimum in _LEAST.items():
            if not minimum <= getattr(self, name) <= LARGEST_COUNT:
                raise ValueError(f"the plan's {name} is {getattr(self, name):.3g}; give {minimum} to {LARGEST_COUNT}")
        if self.file_bytes is not None and not 1 <= self.file_bytes <= LARGEST_COUNT:
            raise ValueError(f"the plan's file_bytes is {self.file_bytes:.3g}; give 1 to {LARGEST_COUNT}")
        if not all(map(isfinite, (*self.predicted.values(), *self.reads))):
            raise ValueError("the plan's predicted figures are not all numbers; plan again")
        if len(self.reads) not in (0, len(self.queries)):
            raise ValueError(f"the plan predicts {len(self.reads)} of {len(self.queries)} queries; plan again")
        if self.codec not in CODECS:
            raise ValueError(f"the plan's codec is {self.codec[:80]!r}; give one of {', '.join(sorted(CODECS))}")
        if not set(self.parquet_indexes) <= set(PARQUET_INDEXES):
            raise ValueError(
                f"the plan's parquet_indexes are {', '.join(self.parquet_indexes)[:80]!r}; "
                f"give some of {', '.join(PARQUET_INDEXES)}"
            )
        if self.settings != self.features.settings:
            raise ValueError(f"the plan's settings are {self.settings}, those of its features {self.features.settings}")
        self._require_layouts()
        self._require_columns()
        object.__setattr__(
            self, "predicted", {name: round_figure(self.predicted[name]) for name in sorted(self.predicted)}
        )

    def _require_layouts(self) -> None:
        for layout in self.scheme.layouts:
            if any(index >= len(self.features) for index in layout.guiding):
                raise ValueError(f"a layout has the local features {layout.guiding} of {len(self.features)}")
            if any(index >= len(self.queries) for index in layout.serves or ()):
                raise ValueError(f"a layout serves the queries {layout.serves} of {len(self.queries)}")

    def _require_columns(self) -> None:
        if self.partition_by is not None:
            self.schema.find(self.partition_by)
        for layout in self.scheme.layouts:
            if isinstance(layout.blocking, ByOrder | ByCuts):
                self.schema.select(layout.blocking.columns)
            for column in self.schema.select(layout.row_order).columns:
                if key_kind(column.type) is None:
                    raise SchemaError(
                        f"the row order's column {column.name!r} is of the type {column.type!r}, which has no order; "
                        "leave it out"
                    )
        if len(set(self.indexes)) < len(self.indexes):
            raise ValueError(f"the plan has an index twice: {', '.join(map(str, self.indexes))}; name each once")
        for index in self.indexes:
            self.schema.select(index.subject.columns)
        different = self.scheme.columns ^ set(self.schema.names)
        if different:
            raise SchemaError(f"the column {min(different)!r} is in only one of schema and layouts; plan again")

    @classmethod
    def loads_late(cls, data: bytes) -> Plan:
        """Return the plan of :meth:`dumps`' exact bytes, and parse the queries, most of a plan, on first use."""
        value = cls._parse(data)
        queries = value.get("queries")
        if isinstance(queries, list):
            read = partial(from_json, tuple[Query, ...], queries, "plan's queries")
            value = {**value, "queries": LazyTuple(len(queries), read)}
        plan: Plan = from_json(cls, value, "layoutopt-plan document")
        plan.__dict__["_bytes"] = data
        return plan

    def __hash__(self) -> int:
        return hash(self.digest)

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        read = {"bytes_read_share": self.predicted["bytes_fraction"]} if "bytes_fraction" in self.predicted else {}
        return {
            "table": self.table,
            "method": self.method,
            "partition_by": self.partition_by,
            "layouts": len(self.scheme.layouts),
            "features": len(self.features),
            "block_rows": self.block_rows,
            **read,
            "digest": self.digest,
        }

    @cached_property
    def digest(self) -> str:
        """Return the plan's name: the first 16 hexadecimal digits of the SHA-256 of :meth:`dumps`."""
        return compute_digest(self.dumps())
