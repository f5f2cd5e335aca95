"""Rewrite partitions of a table where that pays: ``spark-submit jobs/optimize.py --conf t.toml --budget-share 0.1``.

It takes the flags of ``layoutopt optimize``: ``--table``, ``--partition``, ``--log``, ``--auto``, ``--budget-share``,
``--dry-run``, ``--log-json`` and more. A repeated run rewrites nothing again. Exit codes are those of ``jobs/load.py``.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("optimize"))
