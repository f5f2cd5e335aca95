"""The indexes of a file's row groups, measured by reading one of them after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.errors import SourceError
from layoutopt.foreign.folder_values import constant
from layoutopt.foreign.footers import Footer
from layoutopt.foreign.row_groups import ArrowTypes, row_groups
from layoutopt.foreign.source_files import SourceFiles, stored_names
from layoutopt.indexes.measuring import indexes_type, measure_indexes
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.schema import Schema
from layoutopt.sources.whole_files import ARROW_OPTIONS


def measured_indexes(
    files: SourceFiles, footer: Footer, specs: Sequence[IndexSpec], types: ArrowTypes
) -> pa.StructArray:
    """The indexes of a file's row groups that have rows, [row groups]; the memory of one row group is taken.

    Args:
        files: the source's.
        footer: the file's.
        specs: what to measure.
        types: the Arrow types of the source's columns.

    Raises:
        SourceError: the file can't be read, or holds other values than its footer says.
        SettingError, SchemaError: as :func:`~layoutopt.indexes.measuring.measure_indexes`.
    """
    schema = files.schema.select(sorted({name for spec in specs for name in spec.subject.columns}))
    parts = [pa.array([], indexes_type(specs))]
    path = footer.listed.file.path
    names = stored_names(footer.listed.file, files.schema, footer.arrow.names)
    try:
        with pq.ParquetFile(files.open_input(footer.key), metadata=footer.metadata, **ARROW_OPTIONS) as parquet:
            for group in row_groups(footer):
                rows = _columns(parquet, group, footer, schema, names, types)
                parts.append(measure_indexes(specs, rows, np.array([0, rows.num_rows], dtype=np.int64)))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"the source's file {path!r} can't be read ({' '.join(str(error).split())[:200]}); mend it, or try again "
            "when nobody changes the source"
        ) from error
    return pa.concat_arrays(parts)


def _columns(
    parquet: pq.ParquetFile, group: int, footer: Footer, schema: Schema, names: dict[str, str], types: ArrowTypes
) -> pa.Table:
    """Some columns of a row group, under their names and types."""
    stored = [names[name] for name in schema.names if name in names]
    n = footer.metadata.row_group(group).num_rows
    read = parquet.read_row_group(group, columns=stored) if stored else None
    arrays = []
    for column in schema.columns:
        type = types[column.name]
        if read is not None and column.name in names:
            arrays.append(read.column(names[column.name]).cast(type))
        else:
            value = footer.listed.file.constants.get(column.name)
            arrays.append(pa.chunked_array([pa.repeat(constant(value, column, type), n)]))
    return pa.Table.from_arrays(arrays, names=list(schema.names))
