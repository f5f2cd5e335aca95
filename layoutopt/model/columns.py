"""Names of columns that are ours: those of data files, and those that rows carry on their way there."""

from __future__ import annotations

from typing import Final

from layoutopt.model.vectors import words_for

BLOCK: Final = "_block"
"""In every data file: the number of the row's block, unique in the table."""
TID: Final = "_tid"
"""In data files of schemes with several layouts: the row's position in its segment."""
PLACE: Final = "_w_place"
"""On the way out: the row's place among the rows of its segment that are read, in the files' order."""
POSITION: Final = "_pos"
"""On the way: the row's position in the source."""
END_OF_SOURCE: Final = 2**63 - 1
"""After all positions in a source."""
SEGMENT: Final = "_segment"
"""On the way: the number of the row's segment in the load."""
RESERVED: Final = frozenset({BLOCK, TID, POSITION, SEGMENT})
"""What no column of a source may be called."""

_WORD: Final = "_w"
_VALUE: Final = f"{_WORD}x"


def word_names(n_features: int) -> tuple[str, ...]:
    """The names of the columns that hold a row's feature vector on the way, 64 bits each.

    >>> word_names(65)
    ('_w0', '_w1')
    """
    return tuple(f"{_WORD}{i}" for i in range(words_for(n_features)))


def value_names(n_expressions: int) -> tuple[str, ...]:
    """The names of the columns that hold the values of indexed expressions on the way.

    >>> value_names(2)
    ('_wx0', '_wx1')
    """
    return tuple(f"{_VALUE}{i}" for i in range(n_expressions))
