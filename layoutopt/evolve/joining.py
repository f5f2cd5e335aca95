"""Which entries of a partition are joined when rows come to it: few remain, and no row is written often.

Rows of a small entry cost queries more than those of a large one: the fewer rows, the less alike they are within
blocks, and the worse these compress. Joining is as log-structured merge trees do it: an older entry is joined with
those that came later once these are together about as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LARGER: Final = 1.5
"""An entry up to so many times larger than what came later is joined: batches of about one size differ a little."""


def joined_from(rows: Sequence[int]) -> int | None:
    """The first of the entries that are joined with all later ones; None where none are.

    The oldest, what the partition was loaded with, stays as it is. Afterwards each of the others has over
    :data:`LARGER` times the rows of all later ones together, so the entries of ``n`` appends of one size are at most 2
    more than the logarithm of ``n`` to the base 2.5. A row that is written again is in an entry at least 5/3 times as
    large then, but for the first time, when few rows may be joined with many that just came.

    Args:
        rows: of the entries, in the order in which they came.

    >>> joined_from([100, 1]), joined_from([100, 1, 1]), joined_from([100, 4, 2, 1, 1]), joined_from([100, 8, 1, 2])
    (None, 1, 1, 2)
    """
    later = rows[-1] if rows else 0
    first = None
    for place in range(len(rows) - 2, 0, -1):
        if rows[place] <= LARGER * later:
            first = place
        later += rows[place]
    return first
