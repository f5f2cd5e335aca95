"""Compare a table with its catalog on the executors: ``spark-submit jobs/verify.py --table TABLE``.

It takes the flags of ``layoutopt verify``: ``--table``, ``--sample``, ``--snapshot``, ``--as-of``. It prints a line
for each problem and exits with 1 if there are any.
"""

from __future__ import annotations

import sys

from layoutopt.cli.jobs import main

if __name__ == "__main__":
    sys.exit(main("verify"))
