"""Print the answer of a query, or write it to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layoutopt.errors import SettingError
from layoutopt.inspect.cost import DryRun
from layoutopt.report.texts import format_bytes, printable


def answer_report(answer: pa.Table, limit: int | None) -> dict[str, object]:
    """Return the JSON value of an answer: column names, at most `limit` rows, and the number of all rows."""
    shown = answer if limit is None else answer.slice(0, limit)
    columns = [column.to_pylist() for column in shown.columns]
    return {
        "columns": list(answer.column_names),
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "rows_total": answer.num_rows,
    }


def print_answer(console: Console, answer: pa.Table, limit: int | None) -> None:
    """Print at most `limit` rows of a query's answer."""
    report = answer_report(answer, limit)
    table = Table()
    for name in answer.column_names:
        table.add_column(Text(printable(name)), overflow="fold")
    rows: Any = report["rows"]
    for row in rows:
        table.add_row(*(Text("NULL" if value is None else printable(str(value))) for value in row))
    console.print(table)
    if len(rows) < answer.num_rows:
        console.print(f"{len(rows)} of {answer.num_rows} rows; --limit prints more")


def describe_read(read: DryRun) -> str:
    """Return a sentence about what a query read."""
    size = f"{format_bytes(read.bytes)} of {format_bytes(read.bytes_total)}"
    return f"read {read.blocks:,} of {read.blocks_total:,} blocks, {size}"


def choose_writer(path: Path) -> Callable[[pa.Table], None]:
    """Return what writes an answer to a file, by the suffix of its name.

    Raises:
        SettingError: the suffix is unknown; or, when called, the file can't be written.
    """
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise SettingError(f"--output is {str(path)!r}; name a file that ends in {', '.join(_WRITERS)}")

    def write_answer(answer: pa.Table) -> None:
        try:
            write(answer, path)
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise SettingError(
                f"the answer can't be written to {str(path)!r} ({reason}); name a file that ends in .parquet or .jsonl"
            ) from error

    return write_answer


def _write_csv(answer: pa.Table, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(answer, path)


def _write_json_lines(answer: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in answer.to_batches():
            file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())


def _write_parquet(answer: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(answer, path)


_WRITERS: Final = MappingProxyType({".csv": _write_csv, ".jsonl": _write_json_lines, ".parquet": _write_parquet})
