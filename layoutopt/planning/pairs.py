"""Store what is counted of a source in a file, from which a plan follows without another pass.

The file is Parquet with a row for each partition and distinct vector (Sun 2017, 3.4.3): ``partition`` as text,
``words`` as bit patterns (:mod:`layoutopt.model.vectors`), ``count``. Its metadata has the features that the bits stand
for, and the bounds of columns by partition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.errors import PlanError
from layoutopt.model.documents import canonical_bytes
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import compute_digest
from layoutopt.model.records import from_json
from layoutopt.model.vectors import VectorCounts
from layoutopt.planning.rows import RowCounts
from layoutopt.writer.segment import to_arrow_stream

_SCHEMA: Final = pa.schema([("partition", pa.string()), ("words", pa.list_(pa.int64())), ("count", pa.int64())])
_FORM, _BOUNDS = b"layoutopt.pairs", b"layoutopt.bounds"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of vectors and counts, and the features that the vectors' bits stand for.

    Attributes:
        document: the digest of the features document.
        features: those that guide the blocking of a plan.
        is_sample: whether rows of a few partitions were drawn, for a method that searches over all features.
        counts: the vectors and bounds of the partitions that a plan counts.
    """

    document: str
    features: FeatureSet
    is_sample: bool
    counts: RowCounts

    def covers(self, features: FeatureSet, is_sample: bool) -> bool:
        """Return whether it is what a plan would count under some features."""
        return (features, is_sample) == (self.features, self.is_sample)

    def to_table(self, names: PartitionNames) -> pa.Table:
        """Return the rows of the file, with its metadata."""
        vectors = self.counts.vectors
        partitions = [_name(key, names) for key, counted in vectors.items() for _ in range(len(counted))]
        words = [row.tolist() for counted in vectors.values() for row in counted.words.view(np.int64)]
        counts = [count for counted in vectors.values() for count in counted.counts.tolist()]
        form = {
            "document": self.document,
            "partition_by": names.column,
            "features": self.features.to_json(),
            "is_sample": self.is_sample,
            "columns": [column.name for column in self.counts.columns],
        }
        metadata = {_FORM: canonical_bytes(form), _BOUNDS: to_arrow_stream(self.counts.bounds).hex().encode()}
        return pa.table([partitions, words, counts], schema=_SCHEMA.with_metadata(metadata))


def _name(key: PlainValue, names: PartitionNames) -> str | None:
    return None if key is None else str(names.scalar(key))


def digest_document(document: FeaturesDocument) -> str:
    """Return the digest that names a features document in its pairs."""
    return compute_digest(document.dumps())


def read_pairs(path: Path, document: FeaturesDocument, partition_by: str | None) -> Pairs:
    """Read the pairs of a source under a features document.

    Raises:
        PlanError: the file has none, or those of another document or partition column.
    """
    try:
        table = pq.read_table(path)
        metadata = table.schema.metadata or {}
        form = json.loads(metadata[_FORM])
        bounds = pa.ipc.open_stream(bytes.fromhex(metadata[_BOUNDS].decode())).read_all()
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise PlanError(f"{str(path)!r} has no pairs ({error}); write them by jobs/featurize.py") from error
    column = None if partition_by is None else document.schema.find(partition_by).name
    names = PartitionNames.of(document.schema, column)
    keys = {_name(key, names): key for key in bounds["_key"].to_pylist()}
    texts = table["partition"].combine_chunks().dictionary_encode("encode")
    if (form["document"], form["partition_by"]) != (digest_document(document), column):
        raise PlanError(
            f"{str(path)!r} has pairs of another features file or partition column; write them again by "
            "jobs/featurize.py with the flags of the plan"
        )
    features = from_json(FeatureSet, form["features"], "the features of the pairs")
    codes, counts = np.asarray(texts.indices), np.asarray(table["count"], dtype=np.int64)
    words = np.asarray(table["words"].combine_chunks().flatten()).view(np.uint64).reshape(len(counts), -1)
    vectors = {
        keys[text]: VectorCounts(words[codes == code], counts[codes == code], len(features))
        for code, text in enumerate(texts.dictionary.to_pylist())
    }
    columns = [document.schema.find(name) for name in form["columns"]]
    return Pairs(form["document"], features, form["is_sample"], RowCounts(vectors, bounds, columns))
