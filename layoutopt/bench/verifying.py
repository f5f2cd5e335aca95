"""What `verify` costs beside the least that it could: one scan in DuckDB that decodes and hashes every value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import process_time

import duckdb
import pyarrow.parquet as pq

from layoutopt.errors import TableError
from layoutopt.inspect.verify import verify
from layoutopt.model.types import double_quoted
from layoutopt.scan.table import open_table

_RUNS = 3


def verify_ratio(table: Path) -> float:
    """Processor seconds of `verify` over those of a DuckDB scan that hashes each value of the table's files.

    Of each the best of a few runs, in turns, so that what else the machine does counts little and for both.

    Raises:
        TableError: the table is not intact.
    """
    verifying = scanning = float("inf")
    for _ in range(_RUNS):
        verifying = min(verifying, _processor_seconds(lambda: _verify(table)))
        scanning = min(scanning, _processor_seconds(lambda: scan_everything(table)))
    return verifying / scanning


def scan_everything(table: Path) -> int:
    """Hash every value of the table's files in DuckDB; returns how many values there are."""
    by_columns: dict[tuple[str, ...], list[str]] = defaultdict(list)
    opened = open_table(str(table))
    for file in (file for source in opened.sources for file in source.blocks.files):
        path = opened.catalog.files.full_path(file)
        by_columns[tuple(pq.read_schema(path).names)].append(path)
    values = 0
    with duckdb.connect() as connection:
        for names, files in by_columns.items():
            hashes = ", ".join(f"bit_xor(hash({double_quoted(name)}))" for name in names)
            row = connection.execute(f"SELECT count(*), {hashes} FROM read_parquet(?)", [files]).fetchone()
            values += row[0] * len(names) if row is not None else 0
    return values


def _verify(table: Path) -> None:
    report = verify(open_table(str(table)))
    if not report.ok:
        raise TableError(f"the table {str(table)!r} is not intact ({report.problems[0].message}); load it again")


def _processor_seconds(run: Callable[[], None] | Callable[[], int]) -> float:
    """What all threads of this process together worked for a run."""
    start = process_time()
    run()
    return process_time() - start
