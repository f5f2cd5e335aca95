"""Count a source's feature vectors: ``spark-submit jobs/featurize.py --conf conf/tpch.toml --output pairs.parquet``.

It takes the flags of ``layoutopt plan``; ``--output`` is a Parquet file with a row for each partition and distinct
vector: ``partition``, ``words`` (bit patterns, see ``layoutopt.model.vectors``), ``count``.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("featurize"))
