"""Whether this process checks what it skips, and what it has checked so far."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

SWITCH: Final = "LAYOUTOPT_CHECK_SKIPPING"
"""The environment variable that switches the checks on."""

TALLY: Final[Counter[str]] = Counter()
"""What this process has checked so far, for reports: decisions, blocks and rows read again, and what was undecided."""


def is_on() -> bool:
    """Whether everything that is skipped is to be read again."""
    return os.environ.get(SWITCH, "") not in ("", "0")
