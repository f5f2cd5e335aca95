"""How much property-based tests try: all of it in `make test-long`, less in `make test`, a tenth in `make check`."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "LAYOUTOPT_EXAMPLES"
"""The environment variable with the share of the examples to try, in (0, 1]."""


def examples(usual: int) -> int:
    """How many examples to try where so many are usual; of many at least five."""
    return max(round(usual * float(os.environ.get(VARIABLE, "1"))), min(usual, 5))
