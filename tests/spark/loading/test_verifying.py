"""How files are shared out to the tasks that verify them; what they find is compared in ``tests/spark/rewriting``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.scan.table import Table
from layoutopt.spark.loading.verify import _cut_runs
from tests.scan.builder import build, building
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Nine segments in three partitions, of which one layout has two files each."""
    made = building(SCHEMA, CONDITIONS, layouts=OVERLAPPING, partition_by="year", segment_rows=25)
    return build(tmp_path_factory.mktemp("runs"), some_rows(200), made)


@given(st.data())
def test_each_file_is_in_one_run_with_those_it_is_judged_with(table: Table, data: st.DataObject) -> None:
    paths = [path for source in table.sources for path in source.blocks.files]
    chosen = [path for path in paths if data.draw(st.booleans())] or paths
    most = data.draw(st.integers(1, 40))
    runs = _cut_runs(table, chosen, most)
    assert sorted(path for run, _ in runs for path in run) == sorted(chosen)
    assert 0 < len(runs) <= most
    (source,) = table.sources
    place, key = {}, {}
    for file, segment, layout, entry in zip(
        source.blocks.file, source.segment_of, source.blocks.layout, source.entry_of, strict=True
    ):
        place[source.blocks.files[file]] = int(segment), int(layout)
        key[source.blocks.files[file]] = source.entries[entry].key
    run_of = {path: number for number, (run, _) in enumerate(runs) for path in run}
    for path in chosen:
        assert {run_of[other] for other in chosen if place[other] == place[path]} == {run_of[path]}
        assert key[path] in runs[run_of[path]][1]


def test_no_file_is_no_run(table: Table) -> None:
    assert _cut_runs(table, [], 4) == []
