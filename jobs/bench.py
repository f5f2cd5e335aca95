"""Run an experiment on a cluster: ``spark-submit jobs/bench.py tpch --sf 100 --folder /shared/tpch``.

Arguments are those of ``layoutopt bench``. The folder is one that the driver and all executors see under one name, as
of a network file system: steps read there what others wrote.
"""

from __future__ import annotations

import sys

from layoutopt.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
