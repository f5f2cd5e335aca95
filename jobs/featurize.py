"""Count a source's feature vectors: ``spark-submit jobs/featurize.py --conf conf/tpch.toml --output pairs.parquet``.

It takes the flags of ``layoutopt plan``; ``--output`` is a Parquet file with a row for each partition and distinct
vector: ``partition``, ``words`` (bit patterns, see ``layoutopt.model.vectors``), ``count``.
"""

from __future__ import annotations

import sys

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.cli.jobs import run_job, say
from layoutopt.config.documents import read_features
from layoutopt.config.settings import PlanSettings
from layoutopt.errors import SettingError
from layoutopt.spark.core.featurize import count_vectors, pairs_table
from layoutopt.spark.core.sessions import check_settings
from layoutopt.spark.core.source import conform_columns, open_source


def run(spark: SparkSession, settings: PlanSettings) -> None:
    """Count the vectors and write the pairs."""
    if settings.output.suffix != ".parquet":
        raise SettingError(f"--output is {str(settings.output)!r}; name a .parquet file for the pairs")
    document = read_features(settings.features)
    check_settings(spark, document.features.settings, "the features document")
    rows = conform_columns(open_source(spark, settings.source), document.schema, "the features document")
    counts = count_vectors(rows, document.features.features, settings.partition_by)
    pairs = pairs_table(counts, PartitionNames.of(document.schema, settings.partition_by))
    pq.write_table(pairs, settings.output)
    say(f"counted {pairs.num_rows} pairs of partition and vector: {settings.output}")


if __name__ == "__main__":
    sys.exit(run_job("featurize", PlanSettings, run))
