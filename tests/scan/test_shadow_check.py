"""The check of skipping: whatever skips a row wrongly is found while the query runs, by the rows alone."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pytest

import layoutopt
from layoutopt.catalog.statistics import block_statistics
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, FAILED
from layoutopt.errors import SkippingError
from layoutopt.evaluation.predicates import may_match
from layoutopt.inspect.evaluate import evaluate
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import ByVectors, Layout, Plan
from layoutopt.model.predicates import FALSE, Filter, Node, conjunction
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import pack
from layoutopt.scan import check_switch as switch
from layoutopt.scan import prune, segment_truth, segments
from layoutopt.scan import read as reconstruct
from layoutopt.scan import table_read as reads
from layoutopt.scan.segment_truth import SegmentTruth
from layoutopt.scan.shadow_check import check_decision
from layoutopt.scan.shadow_check_texts import have_same_rows
from layoutopt.scan.table import Table, open_table
from layoutopt.skipping.cannot_match import cannot_match_all
from layoutopt.sql.scans import TableScan, find_scans
from tests.inspect.logs import logged
from tests.scan import builder
from tests.scan.builder import build, building, by_position
from tests.scan.corruptions import shrunk
from tests.scan.layouts import EACH_SCHEME, GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA

AIR = "SELECT id FROM t WHERE kind = 'air'"


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch.SWITCH, "1")


def built(root: Path, rows: pa.Table, layouts: Sequence[Layout] | None = None, **more: Any) -> Table:
    return build(root, rows, building(SCHEMA, CONDITIONS, layouts=layouts, segment_rows=70, **more))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Callable[..., Table]:
    """A table of a scheme, opened anew; each is built once."""

    @cache
    def root(*layouts: Layout) -> str:
        return built(tmp_path_factory.mktemp("honest"), rows, layouts or None).catalog.files.root

    return lambda layouts=None: open_table(root(*(layouts or ())))


def without_feature(number: int) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    def packed(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = bits.copy()
        changed[:, number] = False
        return pack(changed)

    return packed


@EACH_SCHEME
def test_what_is_rightly_skipped_passes_and_is_counted(
    opened: Callable[..., Table], layouts: list[Layout] | None
) -> None:
    honest = opened(layouts)
    before = switch.TALLY.copy()
    honest.sql(AIR)
    found = switch.TALLY - before
    (plan,) = honest.decide(*asked(AIR))
    skipped = ~plan.read & np.isin(plan.source.blocks.layout, [choice.layout for choice in plan.choice])
    assert found["blocks"] == int(skipped.sum()) > 0
    assert found["rows"] == int(plan.source.blocks.rows[skipped].sum())
    assert (found["decisions"], found["conditions of texts"]) == (1, 1)


def asked(sql: str) -> tuple[Any, tuple[str, ...]]:
    (scan,) = find_scans(sql, {"t": SCHEMA})
    return scan.filter.root, scan.columns


@EACH_SCHEME
def test_a_lost_bit_is_found(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "pack", without_feature(0))
    wrong = built(tmp_path, rows, layouts)
    with pytest.raises(
        SkippingError, match=r"rows that match kind = 'air' would not be read \(block \d+ of 'data/all/"
    ):
        wrong.sql(AIR)
    with pytest.raises(SkippingError, match="is skipped by features"):
        wrong.prune(*asked(AIR))
    monkeypatch.setenv(switch.SWITCH, "0")
    assert wrong.sql(AIR).num_rows < rows["kind"].to_pylist().count("air")  # nobody would have heard of it


def test_a_wrong_maximum_is_found(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    column = SCHEMA.names.index("id")
    monkeypatch.setattr(builder, "block_statistics", lambda *args: shrunk(block_statistics(*args), column))
    wrong = build(tmp_path, rows, building(SCHEMA, blocking=by_position(100)))
    with pytest.raises(SkippingError, match=r"1 rows that match id = .* is skipped by statistics"):
        wrong.sql(f"SELECT id FROM t WHERE id = {max(rows['id'].to_pylist()[:100])}")


def test_a_filter_is_evaluated_in_the_zone_of_its_session(tmp_path: Path) -> None:
    """The day of New York begins after that of UTC, in which the table was planned."""
    schema = Schema((Column("id", "int"), Column("day", "date"), Column("seen", "timestamp")))
    begin = dt.datetime(1994, 1, 1, tzinfo=dt.UTC)
    rows = pa.table({"id": pa.array([1], pa.int32()), "day": [begin.date()], "seen": [begin]})
    table = build(tmp_path, rows, building(schema))
    (scan,) = find_scans("SELECT id FROM t WHERE day <= seen", {"t": schema})
    (plan,) = table.decide(scan.filter.root, scan.columns)
    skipped = replace(plan, read=np.array([False]))
    with pytest.raises(SkippingError, match="1 rows that match"):
        check_decision(table, scan.filter.root, [skipped])
    there = replace(table.settings, time_zone="America/New_York")
    check_decision(table, scan.filter.root, [replace(skipped, settings=there)])


def test_a_wrong_partition_range_is_found(tmp_path: Path, rows: pa.Table) -> None:
    wrong = built(tmp_path, rows, partition_by="year")
    statistics = wrong.partition_statistics
    bounds = statistics.bounds["year"]
    shifted = replace(bounds, low=bounds.low + 5, high=bounds.high + 5)
    wrong.__dict__["partition_statistics"] = replace(statistics, bounds={**statistics.bounds, "year": shifted})
    with pytest.raises(SkippingError, match=r"70 rows that match year = 1995 .*is skipped by partition"):
        wrong.sql("SELECT id FROM t WHERE year = 1995")


def test_a_partition_that_nobody_looks_at_is_found(tmp_path: Path, rows: pa.Table) -> None:
    first = rows.filter(pa.array([year == 1994 for year in rows["year"].to_pylist()]))
    build(tmp_path, first, building(SCHEMA, CONDITIONS, partition_by="year"))
    others = rows.filter(pa.array([year != 1994 for year in rows["year"].to_pylist()]))
    wrong = build(tmp_path, others, building(SCHEMA, CONDITIONS[:2], partition_by="year"), load_id="load-2")
    assert wrong.sql("SELECT id FROM t").num_rows == rows.num_rows
    wrong.__dict__["sources"] = wrong.sources[:1]
    with pytest.raises(SkippingError, match="no decision about partition"):
        wrong.sql("SELECT id FROM t")


def test_row_groups_that_are_left_out_of_the_reading_are_found(
    opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = opened()
    right = segments.segments_to_read
    monkeypatch.setattr(reads, "segments_to_read", lambda plan: right(plan)[: None if plan.read.all() else -1])
    with pytest.raises(SkippingError, match="differs from the answer without"):
        wrong.sql(AIR)


def test_nothing_decides_what_is_read_without_being_checked() -> None:
    """Who calls what does not check, by itself: the façade, what checks by itself, and what decides by no filter."""
    package = Path(layoutopt.__file__).parent
    texts = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert {name for name, text in texts.items() if re.search(r"(?<![.\w])(?<!def )prune\(", text)} == {
        "scan/opened_table.py"
    }
    assert {name for name, text in texts.items() if ".all_rows_of(" in text} == {"scan/table.py"}
    assert {name for name, text in texts.items() if ".decide(" in text} == {
        "scan/table.py", "inspect/audit.py"
    }  # fmt: skip


@EACH_SCHEME
@pytest.mark.parametrize("block", range(3))
def test_one_block_too_many_is_found(
    opened: Callable[..., Table], layouts: list[Layout] | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = opened(layouts)

    def too_eager(*args: Any, **kwargs: Any) -> Any:
        packed = cannot_match_all(*args, **kwargs)
        found = np.unpackbits(packed, axis=-1)
        for bits in found.reshape(-1, found.shape[-1]):
            bits[np.flatnonzero(~bits.view(np.bool_))[block % len(bits) : block + 1]] = 1
        return np.packbits(found, axis=-1)

    monkeypatch.setattr(prune, "cannot_match_all", too_eager)
    with pytest.raises(SkippingError):
        wrong.sql("SELECT id FROM t WHERE id >= 0")


def test_a_layout_that_lacks_rows_is_found(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    part = Layout(("id", "kind"), (0,), (), ByVectors())
    wrong = built(tmp_path, rows, [Layout(SCHEMA.names, (1,), SCHEMA.names, ByVectors()), part])
    wrong.sql("SELECT id, kind FROM t WHERE id < 100")

    def every_layout(plan: Plan, roots: Sequence[Node], *_: Any) -> Any:
        return np.ones((len(roots), len(plan.scheme.layouts)), dtype=np.bool_)

    monkeypatch.setattr(prune, "local_layouts", every_layout)
    with pytest.raises(SkippingError, match=r"id <= 99 would not be read \(layout 1 is read, but lacks"):
        wrong.sql("SELECT id, kind FROM t WHERE id < 100")


def test_a_segment_dropped_by_mistake_is_found(opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = opened(GROUPS)
    monkeypatch.setattr(prune, "_in_every_layout", lambda source, _, read: read & (source.segment_of != 1))
    with pytest.raises(SkippingError):
        wrong.sql("SELECT id, price FROM t")


def test_a_row_lost_by_reading_late_is_found(opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = opened(GROUPS)

    def forgetful(parts: Any, values: pa.Table) -> Any:
        found = may_match(parts, values)
        if parts and found.any():
            found[np.argmax(found)] = False
        return found

    monkeypatch.setattr(reconstruct, "may_match", forgetful)
    with pytest.raises(SkippingError, match="late materialisation returns"):
        wrong.sql("SELECT id, price FROM t WHERE kind = 'air'")


MISREAD = {
    "SELECT id FROM t WHERE id >= 100": "rows that match id >= 100 would not be read",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.id >= 100": "differs from the answer without",
    "SELECT avg(score), count(*) FROM (SELECT * FROM t WHERE id >= 100) WHERE score < 5": "differs from the answer",
}


@EACH_SCHEME
def test_a_text_that_is_misread_is_found(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = built(tmp_path, rows.sort_by("id"), layouts, blocking=by_position(5))
    for sql in MISREAD:
        wrong.sql(sql)
    narrow = find_scans("SELECT id FROM t WHERE id < 150", {"t": SCHEMA})[0].filter.root

    def misread(*args: Any, **kwargs: Any) -> list[TableScan]:
        found = find_scans(*args, **kwargs)
        return [replace(scan, filter=Filter.of(conjunction([scan.filter.root, narrow]))) for scan in found]

    monkeypatch.setattr(reads, "find_scans", misread)
    for sql, message in MISREAD.items():
        with pytest.raises(SkippingError, match=message):
            replace(wrong).sql(sql)  # what it read in the text before, it remembers


def test_a_condition_that_is_never_true_is_not_believed(
    opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = opened()
    nothing = [replace(find_scans(AIR, {"t": SCHEMA})[0], filter=Filter.of(FALSE))]
    monkeypatch.setattr(reads, "find_scans", lambda *args, **kwargs: nothing)
    with pytest.raises(SkippingError):
        honest.sql(AIR)


def test_functions_are_evaluated_by_an_engine(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    condition = "substring(kind, 1, 2) = 'ai'"
    honest = build(tmp_path / "honest", rows, building(SCHEMA, [condition]))
    monkeypatch.setattr(builder, "pack", lambda bits: np.zeros((len(bits), 1), dtype=np.uint64))
    wrong = build(tmp_path / "wrong", rows, building(SCHEMA, [condition]))
    root, columns = asked(f"SELECT id FROM t WHERE {condition} AND id < 200")
    before = switch.TALLY.copy()
    honest.prune(root, columns)
    assert (switch.TALLY - before)["decisions"] == 1
    with pytest.raises(SkippingError, match="substring"):
        wrong.prune(root, columns)


def test_what_nobody_here_can_evaluate_is_counted(tmp_path: Path, rows: pa.Table) -> None:
    condition = "cast(score AS string) = '0.5'"
    honest = build(tmp_path, rows, building(SCHEMA, [condition]))
    before = switch.TALLY.copy()
    (pruned,) = honest.prune(*asked(f"SELECT id FROM t WHERE {condition}"))
    assert not pruned.read.all()
    assert (switch.TALLY - before)["undecided decisions"] == 1


def test_a_replayed_log_is_checked(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "pack", without_feature(0))
    wrong = built(tmp_path, rows)
    with pytest.raises(SkippingError):
        evaluate(wrong, logged([AIR]))


def test_other_settings_are_checked_by_the_filter_alone(opened: Callable[..., Table]) -> None:
    honest = opened()
    before = switch.TALLY.copy()
    honest.scan_under(AIR.replace("kind = 'air'", "id < 100"), SessionSettings(ansi=False))
    assert set(switch.TALLY - before) == {"decisions", "blocks", "rows", "undecided texts"}


def test_the_command_line_fails_with_one_sentence(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "pack", without_feature(0))
    built(tmp_path, rows)
    assert main(["query", str(tmp_path), AIR]) == FAILED
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "would not be read" in error
    monkeypatch.delenv(switch.SWITCH)
    assert main(["query", str(tmp_path), AIR]) == DONE


def test_rows_kept_for_the_next_query_are_bounded(
    opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def noted(*args: Any) -> SegmentTruth:
        made.append(args[-1])
        return SegmentTruth(*args)

    monkeypatch.setattr(segment_truth, "SegmentTruth", noted)
    honest = opened()
    honest.sql(AIR)
    honest.sql(AIR)
    assert len(made) == len(set(made)) > 1
    monkeypatch.setattr(segment_truth, "_MOST_BYTES", 0)
    monkeypatch.setattr(segment_truth, "_CACHE", WeakKeyDictionary())
    honest.sql(AIR)
    assert len(segment_truth._CACHE[honest.sources[0]]) == 1


def test_answers_are_compared_as_multisets_up_to_rounding() -> None:
    def of(*found: tuple[Any, ...]) -> pa.Table:
        return pa.table({"a": [a for a, _ in found], "b": pa.array([b for _, b in found], pa.float64())})

    nan, tenth = float("nan"), 0.1 + 0.2
    assert have_same_rows(of((1, 0.3), (2, nan), (2, None)), of((2, None), (2, nan), (1, tenth)))
    assert have_same_rows(of((1, 0.3), (1, -5.0)), of((1, -5.0), (1, tenth)))
    assert not have_same_rows(of((1, 0.3), (1, 0.3)), of((1, 0.3)))
    assert not have_same_rows(of((1, 0.3), (1, 0.3)), of((1, 0.3), (2, 0.3)))
    assert not have_same_rows(of((1, 0.3)), of((1, 0.3001)))
    assert not have_same_rows(of((1, nan)), of((1, None)))
