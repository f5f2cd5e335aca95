"""Experiments of the documentation: their data and query streams, figures, and methods to compare with."""

import sys
from pathlib import Path

# The entry points of jobs/bench/methods.py, found as those of an installed package are.
_PLUGINS = str(Path(__file__).with_name("plugins"))
if _PLUGINS not in sys.path:
    sys.path.append(_PLUGINS)
