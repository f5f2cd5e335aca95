"""Append late rows to a table: ``spark-submit jobs/append.py --conf t.toml --source late.parquet --batch-id monday``.

It takes the flags of ``layoutopt append``: ``--table``, ``--source``, ``--batch-id``, ``--log-json``. A batch is
appended once. Exit codes are those of ``jobs/load.py``.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("append"))
