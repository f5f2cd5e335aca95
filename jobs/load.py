"""Load partitions of a source into a table: ``spark-submit jobs/load.py --conf t.toml --partition dt=2026-11-20``.

It takes the flags of ``layoutopt load``: ``--source``, ``--table``, ``--plan`` (by default the table's own),
``--partition``, ``--from`` and ``--to``, ``--replace``, ``--log-json``. A repeated load does nothing.
Exit codes are those of the command line: see docs/reference/errors.md.
The executors' Python needs the package and its libraries: see docs/guides/spark.md.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("load"))
