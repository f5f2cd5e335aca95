"""Whether this process runs shadow checks of what it skips, and how much it has checked."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

# The environment variable that switches the checks on.
SWITCH: Final = "LAYOUTOPT_CHECK_SKIPPING"

# Counts of what this process has checked, for reports: decisions, blocks and rows read again, and undecided ones.
TALLY: Final[Counter[str]] = Counter()


# The value for which only filters are evaluated on what is skipped, not also the texts of queries.
FILTERS_ONLY: Final = "filters"


def is_on() -> bool:
    """Return whether everything that is skipped is read again and checked."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def checks_texts() -> bool:
    """Return whether the texts of queries, too, are evaluated on what is skipped."""
    return is_on() and os.environ[SWITCH] != FILTERS_ONLY
