"""Check that a reader read whole files: their rows by footers, their pages by checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import metadata_of
from layoutopt.errors import SourceError

# Options of Arrow's reader: fail on damaged pages, and read INT96, Spark's default, in Spark's unit.
ARROW_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}
)

_REQUESTS_AT_ONCE: Final = 64
_CHECKSUM_FAILURE: Final = "could not verify page integrity"  # the message of Arrow and of Spark's Parquet


def read_footer(path: str) -> pq.FileMetaData:
    """Return the footer of a source's file; raise SourceError if it is missing or damaged."""
    try:
        return metadata_of(TableFiles(path).read_footer(""))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(
            f"the source's file {path!r} can't be read ({error}); try again when the source is not being changed"
        ) from error


def check_row_counts(counts: Mapping[str, int], count_rows: Callable[[str], int]) -> None:
    """Raise SourceError for a file (path or URL) of which a reader did not read the rows that its footer counts."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        for path, rows in zip(counts, pool.map(count_rows, counts), strict=True):
            if rows != counts[path]:
                raise SourceError(
                    f"the file {path} has {rows} rows by its footer, but {counts[path]} were read; rewrite "
                    "it, or restore it from a copy"
                )


def check_footer_rows(path: str, footer: pq.FileMetaData) -> None:
    """Raise SourceError for a file whose footer counts its rows in several ways: readers would leave rows out."""
    leaves = footer.schema
    flat = next((place for place in range(len(leaves)) if leaves.column(place).max_repetition_level == 0), None)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    values = rows if flat is None else sum(group.column(flat).num_values for group in groups)
    if not rows == values == footer.num_rows:
        raise SourceError(
            f"the file {path} has {footer.num_rows} rows by its footer, but its row groups have {min(rows, values)}; "
            "rewrite it, or restore it from a copy"
        )


def is_checksum_failure(message: str) -> bool:
    """Return whether a reader's error is a failed page checksum."""
    return _CHECKSUM_FAILURE in message


def damaged_page(path: str) -> SourceError:
    """Return the error for a page with a wrong checksum."""
    return SourceError(
        f"the file {path} has a damaged page: its checksum does not match; restore the file from a copy, or rewrite it"
    )
