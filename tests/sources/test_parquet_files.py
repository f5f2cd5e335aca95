"""Plain Parquet files that Arrow reads: what Spark can't read of them, by some footers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.sources.parquet_files import find_spark_gap


@pytest.mark.parametrize("codec", ["zstd", "brotli"])
def test_the_codec_is_found_whatever_the_texts_are(tmp_path: Path, codec: str) -> None:
    texts = pa.array([b"air", b"\xe9abc"]).cast(pa.string(), safe=False)  # the greatest one is no UTF-8
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": texts}), path, compression=codec)
    gap = find_spark_gap(str(path))
    assert (gap is None) == (codec == "zstd")
    assert gap is None or gap == f"the file {str(path)!r} is compressed by BROTLI, which Spark can't read"
