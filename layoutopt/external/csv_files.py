"""Read CSV files with a header as Parquet, so that queries can join them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from layoutopt.errors import SourceError

# The separator of fields, by the ending of a file's name before that of its compression.
_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".lz4"})


def is_csv(path: str) -> bool:
    """Return whether a path ends as the names of CSV files do.

    >>> is_csv("users.csv"), is_csv("users.tsv.gz"), is_csv("users.csv/")
    (True, True, False)
    """
    return not path.endswith("/") and _ending(path) in _SEPARATORS


def _ending(path: str) -> str:
    endings = [ending.lower() for ending in Path(path).suffixes[-2:]]
    return next((ending for ending in reversed(endings) if ending not in _COMPRESSED), "")


def to_parquet(path: str) -> str:
    """Write a CSV file as Parquet in a temporary folder, which is removed when Python exits, and return its path.

    The first line names the columns. Types are those that all values have: whole numbers, floats, booleans, dates,
    timestamps without a time zone, otherwise texts. Empty fields are NULL, quoted ones empty texts.

    Raises:
        SourceError: the file is missing or no CSV.
    """
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""])
    try:
        rows = csv.read_csv(
            path, parse_options=csv.ParseOptions(delimiter=_SEPARATORS[_ending(path)]), convert_options=options
        )
    except FileNotFoundError as error:
        raise SourceError(f"there is no file {path!r}; correct the path") from error
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(f"{path!r} can't be read as CSV with a header ({reason}); correct the file") from error
    fields = [field.with_type(pa.string()) if not _is_kept(field.type) else field for field in rows.schema]
    folder = tempfile.mkdtemp(prefix="layoutopt-csv-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    written = f"{folder}/rows.parquet"
    pq.write_table(rows.cast(pa.schema(fields)), written)
    return written


def _is_kept(type: pa.DataType) -> bool:
    return not (pa.types.is_null(type) or pa.types.is_time(type) or pa.types.is_duration(type))
