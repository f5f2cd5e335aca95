"""The condition by which Spark leaves out row groups: all that is needed, nothing forbidden, and the cheapest way."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.model.arrays import Bits, Ints
from layoutopt.scan.reads import split_by_deletes
from layoutopt.scan.table import Table
from layoutopt.spark.session.conditions import Candidates, Choice, blocks_of, choose, range_tree
from tests.scan.builder import build, building, by_position
from tests.scan.deleting import delete_ids
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

pytestmark = pytest.mark.unshadowed("where skipping is checked, nothing is read in vain")

NEEDED, SPARE, FORBIDDEN = "nsf"
BLOCKS = st.lists(
    st.tuples(st.sampled_from([NEEDED, SPARE, FORBIDDEN]), st.integers(0, 3), st.sampled_from([0, 1, 700, 100_000])),
    min_size=1, max_size=300,
)  # fmt: skip


def candidates(blocks: list[tuple[str, int, int]], first: int = 0) -> Candidates:
    kinds = np.array([kind for kind, _, _ in blocks])
    file, rows = (np.array([block[i] for block in blocks], dtype=np.int64) for i in (1, 2))
    ids = first + 2 * np.arange(len(blocks), dtype=np.int64)  # numbers between belong to other layouts
    return Candidates(ids, file, rows, 9 * rows, kinds == NEEDED, kinds == SPARE)


def blocks_read(blocks: Candidates, choice: Choice) -> Bits:
    """Which blocks pass, by evaluating the text of the condition."""
    opened = np.ones(len(blocks.ids), bool) if choice.files is None else np.isin(blocks.file, choice.files)
    if not choice.condition:
        return opened
    test = re.sub(r"BETWEEN (\d+) AND (\d+)", r"in range(\1, \2 + 1)", choice.condition)
    test = test.replace(" = ", " == ").replace("AND", "and").replace("OR", "or").replace(" IN ", " in ")
    asked = np.array([eval(test, {"_block": int(each), "range": range}) for each in blocks.ids], dtype=np.bool_)
    read: Bits = opened & asked
    return read


@given(BLOCKS, st.integers(1, 5))
def test_parts_of_listed_blocks_are_all_of_them_once_and_about_as_large(
    blocks: list[tuple[str, int, int]], parts: int
) -> None:
    given_blocks = candidates([(NEEDED, 0, 5), *blocks])
    rows = given_blocks.rows[given_blocks.needed]
    choice = choose(given_blocks, 3, False, 400)
    if choice.listed is None:  # nothing needs to be asked
        return
    found = choice.in_parts(rows, parts)
    assert 1 <= len(found) <= parts
    listed = [part.listed.tolist() for part in found if part.listed is not None]
    assert all(listed)
    assert [block for each in listed for block in each] == choice.listed.tolist()
    of = dict(zip(choice.listed.tolist(), rows.tolist(), strict=True))
    assert max(sum(of[block] for block in each) for each in listed) < rows.sum() / parts + rows.max() + 1


@given(BLOCKS, st.integers(0, 2**62), st.integers(0, 60), st.booleans(), st.sampled_from([0, 1, 20, 400]))
def test_all_that_is_needed_is_read_and_nothing_that_is_forbidden(
    blocks: list[tuple[str, int, int]], first: int, columns: int, can_name_files: bool, most_listed: int
) -> None:
    given_blocks = candidates([(NEEDED, 0, 5), *blocks], first)
    choice = choose(given_blocks, columns, can_name_files, most_listed)
    read = blocks_read(given_blocks, choice)
    assert read[given_blocks.needed].all()
    assert not read[~given_blocks.needed & ~given_blocks.spare].any()
    assert given_blocks.rows[read].sum() == choice.rows


def test_where_nearly_all_is_needed_nothing_is_asked() -> None:
    choice = choose(candidates([(NEEDED, 0, 10_000)] * 95 + [(SPARE, 0, 10_000)] * 5), columns=2)
    assert choice.condition == ""
    assert choice.files is None


def test_where_much_is_skipped_it_is_asked_for() -> None:
    choice = choose(candidates([(NEEDED, 0, 10_000)] * 10 + [(SPARE, 0, 10_000)] * 90), columns=2)
    assert choice.condition == "_block BETWEEN 0 AND 18"


def test_rows_that_the_querys_own_filter_skips_are_not_asked_for() -> None:
    choice = choose(candidates([(NEEDED, 0, 10_000)] * 10 + [(SPARE, 0, 0)] * 90), columns=2)
    assert choice.condition == ""


def test_no_more_ranges_than_are_compiled_where_all_are_alike() -> None:
    choice = choose(candidates([(NEEDED, 0, 10_000), *[(SPARE, 0, 10_000)] * 2] * 40), columns=2)
    assert choice.condition.count("_block") <= 24
    widely = choose(candidates([(NEEDED, 0, 10_000), *[(SPARE, 0, 10_000)] * 999] * 40), columns=2)
    assert widely.rows == 400_000  # so much is skipped that a slow condition pays


@pytest.mark.parametrize("needed", [1, 3, 40])
def test_blocks_are_listed_where_the_session_takes_lists(needed: int) -> None:
    """Never in so short a list that Spark would compare with each value in the code."""
    blocks = candidates([(NEEDED, 0, 10_000), *[(SPARE, 0, 10_000)] * 2] * needed)
    choice = choose(blocks, columns=2, most_listed=40)
    assert choice.condition.startswith("_block IN (")
    assert choice.condition.count(",") >= 10
    assert choice.rows == 10_000 * needed
    assert "IN" not in choose(blocks, columns=2, most_listed=needed - 1).condition


def test_files_without_a_needed_block_stay_shut() -> None:
    blocks = candidates([(NEEDED, 0, 100)] * 3 + [(SPARE, file, 1000) for file in range(1, 30) for _ in range(100)])
    choice = choose(blocks, columns=2)
    assert choice.files is not None
    assert choice.files.tolist() == [0]
    assert choice.condition == ""
    assert choose(blocks, columns=2, can_name_files=False).condition == "_block BETWEEN 0 AND 4"


@given(st.sets(st.integers(0, 400), min_size=1))
def test_a_tree_of_ranges_holds_for_just_these(chosen: set[int]) -> None:
    numbers = sorted(chosen)
    test = range_tree(numbers, numbers).replace(" = ", " == ").replace("AND", "and").replace("OR", "or")
    test = re.sub(r"BETWEEN (\d+) and (\d+)", r"in range(\1, \2 + 1)", test)
    assert {each for each in range(-2, 403) if eval(test, {"_block": each, "range": range})} == chosen


@pytest.mark.parametrize("where", ["", " WHERE id >= 30", " WHERE kind = 'air'"])
def test_blocks_with_deleted_rows_are_never_read_by_spark_itself(tmp_path: Path, where: str) -> None:
    """Its reader knows no vectors: what is deleted would come back, in vain or not."""
    build(tmp_path, some_rows(90), building(SCHEMA, CONDITIONS, blocking=by_position(9)))
    table = delete_ids(str(tmp_path), [*range(10, 20), 41])
    (read,) = table.scan(f"SELECT id FROM t{where}").reads
    clean, rest = split_by_deletes(read)
    blocks, _ = blocks_of(clean)
    deleted = dict(zip(*(each.tolist() for each in _deleted(table)), strict=True))
    has_some = np.array([deleted[block] > 0 for block in blocks.ids.tolist()])
    assert has_some.any()
    assert not (has_some & (blocks.needed | blocks.spare)).any()
    assert rest is not None
    (pruned,), (first,), (second,) = read.pruned, clean.pruned, rest.pruned
    assert (first.read ^ second.read == pruned.read).all()
    assert not (first.read & second.read).any()


def _deleted(table: Table) -> tuple[Ints, Ints]:
    """The numbers of a table's blocks, and how many of their rows are deleted."""
    (source,) = table.sources
    return source.blocks.block_id, source.blocks.deleted_rows
