"""Count a source's feature vectors: ``spark-submit jobs/featurize.py --conf conf/tpch.toml --output pairs.parquet``.

It takes the flags of ``layoutopt plan``, and counts what a plan with these flags would: vectors of a few partitions,
by samples where they have many rows. ``--output`` is a Parquet file with a row for each partition and distinct vector:
``partition``, ``words`` (bit patterns, see ``layoutopt.model.vectors``), ``count``. ``jobs/plan.py --pairs`` takes it.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("featurize"))
