"""Run an experiment on a cluster: ``spark-submit jobs/bench.py tpch --sf 100 --folder /shared/tpch``.

It takes the arguments of ``layoutopt bench``. The folder must have the same path on the driver and all executors, for
example on a network file system.
"""

from __future__ import annotations

import sys

from layoutopt.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
