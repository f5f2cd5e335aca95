"""Plan a table's layout: ``spark-submit jobs/plan.py --conf conf/tpch.toml``.

It takes the flags of ``layoutopt plan``: ``--source``, ``--features``, ``--partition-by``, ``--output``, ``--pairs``
with what ``jobs/featurize.py`` counted, ... Spark's tasks read the source.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("plan"))
