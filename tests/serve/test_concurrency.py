"""Many clients at once, while the table is written to: every answer is one snapshot's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.catalog.commit import APPEND
from layoutopt.model.schema import Column, Schema
from layoutopt.serve import planning
from tests.effort import long_too
from tests.scan.builder import build, building
from tests.serve.serving import files_of, serving

SCHEMA = Schema((Column("id", "int"), Column("kind", "string"), Column("x", "double")))
FILTERS = ("id < 7", "kind = 'b' AND x > 3", "kind IN ('a', 'c') OR x < 1", "id >= 20")


def written(root: Path, first: int, load: str, operation: str | None) -> None:
    ids = range(first, first + 12)
    rows = pa.table({"id": pa.array(ids, pa.int32()), "kind": ["abc"[i % 3] for i in ids], "x": [i / 4 for i in ids]})
    build(root, rows, building(SCHEMA, ["kind = 'b'", "x > 3"], segment_rows=3), load, operation)


@pytest.mark.parametrize(("clients", "remembered"), [(20, 200), *long_too((100, planning._MOST_REMEMBERED))])
def test_many_clients_and_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int, remembered: int
) -> None:
    monkeypatch.setattr(planning, "_MOST_REMEMBERED", remembered)
    root, together = tmp_path / "t", threading.Barrier(clients + 1)
    written(root, 0, "load-1", None)
    with serving([root]) as served:

        def read(number: int) -> list[tuple[str, frozenset[str]]]:
            together.wait()
            table = served.table()
            wanted = [FILTERS[(number + i) % len(FILTERS)] for i in range(2)]
            return [(filter, frozenset(files_of(table, filter))) for filter in wanted]

        with ThreadPoolExecutor(clients) as pool:
            answers = [pool.submit(read, number) for number in range(clients)]
            together.wait()
            for load in (2, 3, 4):
                written(root, 12 * load, f"load-{load}", APPEND)
            found = [pair for answer in answers for pair in answer.result()]
        table = served.table()
        of_snapshots = {
            filter: {frozenset(files_of(table, filter, snapshot_id=id)) for id in range(1, 5)} for filter in FILTERS
        }
        assert len(found) == 2 * clients
        assert all(files in of_snapshots[filter] for filter, files in found)
        assert not [line for line in served.lines if line["status"] not in (200, 204)]
