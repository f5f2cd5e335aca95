"""The audit of a log: the blocks that each query skips are read again, to prove that none holds a row that it asks for.

Every segment is read once, whole. A query's own condition, cut out of its text, is evaluated by DuckDB on these rows,
so that nothing of the analysis, the features, the statistics or the skipping rule is believed. Where DuckDB might take
the condition otherwise than Spark, or the statement is more than one plain SELECT, the filter as analysed is evaluated
instead (which believes the analysis); where that can't be done either, the query is named as not audited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from layoutopt.errors import QueryError
from layoutopt.model.predicate import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.arrow_types import empty_table
from layoutopt.scan.engine import connect
from layoutopt.scan.matching import matching_rows
from layoutopt.scan.prune import Fate, PlanBlocks
from layoutopt.scan.read import BATCH_ROWS, TID, FileRead, SegmentRead, read_file, read_segments
from layoutopt.scan.table import Table, segments_to_read
from layoutopt.workload.condition import plain_condition
from layoutopt.workload.portable import portable_sql

Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]

_PLACE = "_place"
"""A row's position among those of its segment that were read."""
_AT_ONCE = 50  # conditions that DuckDB evaluates in one pass
_NAMES = {Fate.PARTITION: "partition", Fate.FEATURES: "features", Fate.STATISTICS: "statistics"}
_MOST_PROBLEMS = 1000


@dataclass(frozen=True)
class Loss:
    """A block that a query skips although it holds a row that the query asks for.

    Attributes:
        mechanism: what skips it; ``layout`` where the layout that is read lacks the row.
        block: the ``_block`` value, -1 with ``layout``.
        file: the data file, or the partition with ``layout``.
        queries: the places in the log of the queries that lose rows there.
    """

    mechanism: str
    block: int
    file: str
    queries: tuple[int, ...]


@dataclass(frozen=True)
class AuditReport:
    """What was proved, what was found, and what could not be looked at.

    Attributes:
        queries: scans of the table in the log.
        by_text: scans whose own condition was evaluated.
        by_filter: scans of which the filter as analysed was evaluated.
        unaudited: (place in the log, why) of the others.
        rows: rows read.
        proved: pairs of a query and a block that it skips rightly, by mechanism.
    """

    table: str
    snapshot: int
    queries: int
    by_text: int
    by_filter: int
    unaudited: tuple[tuple[int, str], ...]
    rows: int
    proved: dict[str, int]
    losses: tuple[Loss, ...]

    @property
    def ok(self) -> bool:
        """Whether no query loses a row."""
        return not self.losses

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "ok": self.ok}

    def __rich__(self) -> RenderableType:
        return render_audit(self)


@dataclass
class _Audited:
    """One distinct question of the log: what is asked of rows, and which queries ask it."""

    root: Node
    columns: tuple[str, ...]
    condition: str | None
    ids: list[int] = field(default_factory=list)

    @property
    def needs(self) -> frozenset[str]:
        """The columns that tell which rows match; of a text's own condition all that the query reads."""
        return self.root.columns if self.condition is None else frozenset(self.columns)


def audit(
    table: Table, queries: Iterable[Query], dialect: str = "spark", progress: Progress | None = None
) -> AuditReport:
    """Reads a table again and proves of each query of a log that what it skips holds no row for it.

    Args:
        table: the table at one snapshot.
        queries: the analysed log.
        dialect: the log's.
        progress: called with (segments done, all segments).

    Raises:
        DataFileError: a data file is missing or damaged.
        CatalogError: a catalog file is damaged.
    """
    listed = list(queries)
    asked, unaudited = _questions(table, listed, dialect)
    names = frozenset().union(*(each.needs for each in asked))
    columns = tuple(column for column in table.schema.columns if column.name in names) or table.schema.columns[:1]
    whole = [segments_to_read(plan) for plan in table.prune(TRUE, [column.name for column in columns])]
    rows = done = 0
    losses, proved = list[Loss](), dict.fromkeys(_NAMES.values(), 0)
    for source, segments in zip(table.sources, whole, strict=True):
        found = _Matches(source, len(asked))
        for number, segment in enumerate(segments):
            batches = list(read_segments(table.catalog.files, [segment], columns))
            content = pa.Table.from_batches(batches, empty_table(columns).schema if not batches else None)
            found.add(table, asked, number, segment, content)
            rows, done = rows + content.num_rows, done + 1
            if progress is not None:
                progress(done, sum(map(len, whole)))
        losses += _judge(table, source, asked, found, proved)
    by_text = sum(len(each.ids) for each in asked if each.condition is not None)
    return AuditReport(
        table.name, table.catalog.snapshot.number, len(listed), by_text,
        len(listed) - by_text - len(unaudited), tuple(unaudited), rows, proved, tuple(losses[:_MOST_PROBLEMS]),
    )  # fmt: skip


def _questions(table: Table, queries: Sequence[Query], dialect: str) -> tuple[list[_Audited], list[tuple[int, str]]]:
    """The distinct questions, and the queries that can't be audited."""
    asked: dict[tuple[Node, tuple[str, ...], str | None], _Audited] = {}
    unaudited = []
    nothing = empty_table(table.schema.columns)
    for query in queries:
        condition = _own_condition(table, query, dialect)
        root = query.filter.root
        if condition is None and matching_rows(root, nothing) is None:
            unaudited.append((query.id, "only Spark can evaluate it as Spark does"))
            continue
        question = _Audited(root, query.columns, condition)
        asked.setdefault((root, query.columns, condition), question).ids.append(query.id)
    return list(asked.values()), unaudited


def _own_condition(table: Table, query: Query, dialect: str) -> str | None:
    """The query's WHERE where it is plain and means the same to DuckDB."""
    try:
        condition = plain_condition(query.sql, dialect)
        if condition is not None:
            _bits_sql(table.schema, [condition])
    except QueryError:
        return None
    return condition


def _bits_sql(schema: Schema, conditions: Sequence[str]) -> str:
    """DuckDB's text for whether each row makes each condition TRUE, with the row's place."""
    bits = ", ".join(f"CASE WHEN {text} THEN TRUE ELSE FALSE END AS c{i}" for i, text in enumerate(conditions))
    placed = Schema((*schema.columns, Column(_PLACE, "bigint")))
    return portable_sql(f"SELECT {_PLACE}, {bits} FROM t", {"t": placed}, "t").sql


class _Matches:
    """Which blocks of a plan hold a row for which question, and which layouts lack such a row."""

    def __init__(self, source: PlanBlocks, questions: int) -> None:
        self._source = source
        self.block = np.zeros((source.blocks.n, questions), dtype=np.bool_)
        self.lacking: dict[tuple[int, int], Bits] = {}
        """By (layout, segment), for each question whether a matching row is in no block of that layout."""

    def add(self, table: Table, asked: Sequence[_Audited], number: int, segment: SegmentRead, rows: pa.Table) -> None:
        """Notes what matches in one segment, of which these are all rows."""
        blocks_of = self._blocks_of_rows(table, number, segment, rows.num_rows)
        for index, matched in _matching(table, asked, rows):
            places = np.flatnonzero(matched)
            for layout, block_of in blocks_of.items():
                blocks = block_of[places]
                self.block[blocks[blocks >= 0], index] = True
                if (blocks < 0).any():
                    lacking = self.lacking.setdefault((layout, number), np.zeros(len(asked), dtype=np.bool_))
                    lacking[index] = True

    def _blocks_of_rows(self, table: Table, number: int, read: SegmentRead, rows: int) -> dict[int, Ints]:
        """For each layout the block that holds each row, -1 where the layout lacks it; int64[rows]."""
        blocks = self._source.blocks
        here = np.flatnonzero(self._source.segment_of == number)
        here = here[np.lexsort((blocks.row_group[here], blocks.file[here]))]
        if not self._source.plan.scheme.has_tids:
            return {0: np.repeat(here, blocks.rows[here])}
        by_layout = {layout: here[blocks.layout[here] == layout] for layout in np.unique(blocks.layout[here]).tolist()}
        tids = {layout: self._tids(table, mine) for layout, mine in by_layout.items()}
        # Rows of one layout come as they stand in its files, rows of several in the order of their tids.
        order = tids[read.layouts[0].layout] if len(read.layouts) == 1 else np.arange(rows)
        found = {}
        for layout, mine in by_layout.items():
            block_of_tid = np.full(int(max(rows, *(t.max(initial=-1) + 1 for t in tids.values()))), -1, dtype=np.int64)
            block_of_tid[tids[layout]] = np.repeat(mine, blocks.rows[mine])
            found[layout] = block_of_tid[order]
        return found

    def _tids(self, table: Table, mine: Ints) -> Ints:
        blocks = self._source.blocks
        arrays = []
        for file in np.unique(blocks.file[mine]).tolist():
            members = mine[blocks.file[mine] == file]
            groups, rows = blocks.row_group[members].tolist(), blocks.rows[members].tolist()
            part = FileRead(blocks.files[file], tuple(groups), tuple(rows))
            arrays += [batch.column(0) for batch in read_file(table.catalog.files, part, [TID], BATCH_ROWS)]
        return np.concatenate([np.zeros(0, np.int64), *(np.asarray(array, dtype=np.int64) for array in arrays)])


def _matching(table: Table, asked: Sequence[_Audited], rows: pa.Table) -> Iterator[tuple[int, Bits]]:
    """For each question the rows that it asks for, bool[rows]."""
    by_text = [(index, each.condition) for index, each in enumerate(asked) if each.condition is not None]
    schema = Schema(tuple(column for column in table.schema.columns if column.name in rows.column_names))
    with connect(table.settings.time_zone) as connection:
        connection.register("t", rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64))))
        for start in range(0, len(by_text), _AT_ONCE):
            part = by_text[start : start + _AT_ONCE]
            found = connection.sql(_bits_sql(schema, [text for _, text in part])).to_arrow_table()
            places = np.asarray(found.column(0))
            for position, (index, _) in enumerate(part):
                matched = np.zeros(rows.num_rows, dtype=np.bool_)
                matched[places] = np.asarray(found.column(position + 1))
                yield index, matched
    for index, each in enumerate(asked):
        if each.condition is None:
            bits = matching_rows(each.root, rows)
            if bits is None:
                raise QueryError(f"query {each.ids[0]} matches texts that are no UTF-8; leave it out of the log")
            yield index, bits


def _judge(
    table: Table, source: PlanBlocks, asked: Sequence[_Audited], found: _Matches, proved: dict[str, int]
) -> list[Loss]:
    """Compares what every question skips with what matches it."""
    lost: dict[tuple[str, int, str], list[int]] = {}
    blocks = source.blocks
    for index, each in enumerate(asked):
        (pruned,) = (plan for plan in table.prune(each.root, each.columns) if plan.source is source)
        for fate, mechanism in _NAMES.items():
            skipped = pruned.fate == fate
            wrong = np.flatnonzero(skipped & found.block[:, index])
            proved[mechanism] += (int(skipped.sum()) - len(wrong)) * len(each.ids)
            for block in wrong.tolist():
                place = (mechanism, int(blocks.block_id[block]), blocks.files[blocks.file[block]])
                lost.setdefault(place, []).extend(each.ids)
        chosen = {choice.layout for choice in pruned.choice}
        for (layout, segment), lacking in found.lacking.items():
            if layout in chosen and lacking[index]:
                entry = source.entries[source.entry_of[np.argmax(source.segment_of == segment)]]
                lost.setdefault(("layout", -1, f"layout {layout} of {entry.key}"), []).extend(each.ids)
    return [Loss(*place, tuple(sorted(set(ids)))) for place, ids in lost.items()]


def render_audit(report: AuditReport) -> RenderableType:
    """A report for a terminal."""
    audited = report.by_text + report.by_filter
    proofs = ", ".join(f"{count:,} by {mechanism}" for mechanism, count in report.proved.items())
    verdict = "no query loses a row" if report.ok else f"{len(report.losses)} blocks are skipped wrongly"
    lines: list[RenderableType] = [
        Text(f"{report.table}, snapshot {report.snapshot}: {verdict}"),
        Text(f"{audited:,} of {report.queries:,} queries audited over {report.rows:,} rows; skips proved: {proofs}"),
    ]
    lines += [Text(_loss_text(loss), style="red") for loss in report.losses]
    if report.by_filter:
        lines.append(Text(f"{report.by_filter:,} only by their filter as analysed", style="dim"))
    lines += [Text(f"not audited: query {number}: {why}", style="dim") for number, why in report.unaudited]
    return Group(*lines)


def _loss_text(loss: Loss) -> str:
    queries = ", ".join(map(str, loss.queries[:10])) + (", …" if len(loss.queries) > 10 else "")
    if loss.mechanism == "layout":
        return f"layout: {loss.file} lacks rows of the queries {queries}, which read it"
    return f"{loss.mechanism}: block {loss.block} of {loss.file} is skipped, but has rows of the queries {queries}"
