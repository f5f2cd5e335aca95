"""Which entries of a partition are joined when rows come to it: few remain, and no row is written often.

Rows of a small entry cost queries more than those of a large one: the fewer rows, the less alike they are within
blocks, and the worse these compress. Joining is as log-structured merge trees do it: an older entry is joined with
those that came later once these are together as large.
"""

from __future__ import annotations

from collections.abc import Sequence


def joined_from(rows: Sequence[int]) -> int | None:
    """The first of the entries that are joined with all later ones; None where none are.

    The oldest, what the partition was loaded with, stays as it is. Afterwards each of the others has more rows than
    all later ones together, so at most ``log2(n) + 1`` of ``n`` appends of one size remain. A row that is written again
    is in an entry twice as large then, but for the first time, when few rows may be joined with many that just came.

    Args:
        rows: of the entries, in the order in which they came.

    >>> joined_from([100, 1]), joined_from([100, 1, 1]), joined_from([100, 4, 2, 1, 1]), joined_from([100, 4, 1, 2])
    (None, 1, 1, 2)
    """
    later = rows[-1] if rows else 0
    first = None
    for place in range(len(rows) - 2, 0, -1):
        if rows[place] <= later:
            first = place
        later += rows[place]
    return first
