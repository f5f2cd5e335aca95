"""Load partitions of a source into a table: ``spark-submit jobs/load.py --conf t.toml --partition dt=2026-11-20``.

It takes the flags of ``layoutopt load``: ``--source``, ``--table``, ``--plan`` (by default the table's own),
``--partition``, ``--from`` and ``--to``, ``--replace``, ``--log-json``. A repeated load does nothing.
Exit codes: 0 done, 1 failed (try again), 2 bad usage or input (do not try again), 3 conflict with other rows,
4 no rows yet (try later).
The executors' Python needs the package (installed, or shipped with ``--py-files``).
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("load"))
