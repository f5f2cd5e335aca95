"""How long a server plans scans of a table of many files: a table's own, each under many names."""

from __future__ import annotations

import http.client
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest

from layoutopt.bench.files.asked import iceberg_filter
from layoutopt.bench.files.reading import served_at
from layoutopt.catalog.commit import commit_load, ensure_table_root, partition_entries
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.model.query import Query
from layoutopt.publish.contents import views_of
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.serve.filters import condition_of, residual_of
from layoutopt.serve.planning import Planner
from layoutopt.serve.protocol import scan_request
from layoutopt.workload.served import said


def multiply(root: Path, to: Path, files: int) -> int:
    """Make a table of at least so many files, whose rows are another table's again and again; how many they are.

    Each file is linked under other names, so that no bytes are copied; the catalog knows each as a file of its own
    (with blocks of other numbers than the files' own ``_block``: it is for planning alone).

    Args:
        root: a table of one layout, loaded at once.
        to: where the new one goes; what is there is removed.
        files: how many at least.
    """
    shutil.rmtree(to, ignore_errors=True)
    before, made = Catalog.open(str(root)), TableFiles(str(to))
    base = ensure_table_root(made)
    (plan,) = before.plans.values()
    written = pa.concat_tables(
        [pq.read_table(root / path) for path in sorted({entry.blocks_file for entry in before.partitions})]
    )
    paths, load = written["file"].to_pylist(), new_load_id()
    old = before.partitions[0].load_id
    times = -(-files // len(set(paths)))
    copies = []
    for number in range(times):
        names = {
            path: path.replace(old, load).replace(".parquet", f"-{number}.parquet") for path in dict.fromkeys(paths)
        }
        for path, name in names.items():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(root / path, to / name)
        numbers = np.arange(len(paths)) + number * len(paths)
        copies.append(_replaced(_replaced(written, "file", [names[path] for path in paths]), "block", numbers))
    blocks, values = pa.concat_tables(copies), {entry.key: entry.value for entry in before.partitions}
    entries = partition_entries(blocks, plan, load, values)
    commit_load(made, base, plan, load, entries, blocks)
    return times * len(set(paths))


def planning_seconds(root: Path, queries: Sequence[Query]) -> dict[str, Any]:
    """How long plans take for filters that are new to the server.

    Returns:
        ``files``; ``opening``, the seconds of the first plan; of each query ``processor``, the process's seconds, and
        ``wall``; ``http``, from sending the request to the last byte of `layoutopt serve`'s answer; and ``planned``,
        how many files.
    """
    bodies = [_body(query) for query in queries]
    catalog = Catalog.open(str(root))
    (view,) = views_of(catalog)
    started = time.perf_counter()
    planner = Planner(OpenedTable(catalog), view)
    every = _plan(planner, _body(None))
    opening = time.perf_counter() - started
    processor, wall, planned = [], [], []
    for body in bodies:
        before = time.process_time(), time.perf_counter()
        planned.append(len(_plan(planner, body)))
        processor.append(time.process_time() - before[0])
        wall.append(time.perf_counter() - before[1])
    with served_at(root) as url, _connected(url) as connection:
        _asked(connection, _body(None))
        over_http = [_asked(connection, body) for body in bodies]
    return {
        "files": len(every), "opening": opening, "processor": processor, "wall": wall, "http": over_http,
        "planned": planned,
    }  # fmt: skip


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def _body(query: Query | None) -> bytes:
    asked = None if query is None else iceberg_filter(said(query.filter.root))
    return PlanTableScanRequest(filter=asked).model_dump_json(by_alias=True, exclude_none=True).encode()


def _plan(planner: Planner, body: bytes) -> tuple[str, ...]:
    wanted = scan_request(body).filter
    return planner.plan(condition_of(wanted, planner.target), residual_of(wanted)).paths


@contextmanager
def _connected(url: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def _asked(connection: http.client.HTTPConnection, body: bytes) -> float:
    started = time.perf_counter()
    connection.request("POST", "/v1/namespaces/default/tables/t/plan", body)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    return time.perf_counter() - started
