"""The skipping indicators of extensible data skipping (Ta-Shma 2020, IV-A): where the rows that are read come from.

With D the table's rows, D_r those that match, O_r the blocks that hold one of them and O_m the blocks that are read::

    selectivity      |D_r| / |D|        what the query asks for
    layout factor    |D_r| / |O_r|      how well matching rows stand together: 1 is best
    metadata factor  |O_r| / |O_m|      how well bits and statistics tell such blocks from others: 1 is best
    scanning factor  |O_m| / |D|        what is read, = selectivity / (layout factor x metadata factor)

A low layout factor asks for another plan, a low metadata factor for features or statistics that the filters can use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Indicators = dict[str, float | None]

NAMES = ("selectivity", "layout_factor", "metadata_factor", "scanning_factor")


def indicators(total: int, scanned: int, matching: int | None, relevant: int | None) -> Indicators:
    """The indicators of one query; None where they are not known, or not defined since no row matches.

    Args:
        total: the table's rows.
        scanned: rows of the blocks that are read.
        matching: rows that match, if known.
        relevant: rows of the blocks that hold one of these, if known.

    >>> indicators(100, 40, 5, 10)
    {'selectivity': 0.05, 'layout_factor': 0.5, 'metadata_factor': 0.25, 'scanning_factor': 0.4}
    """
    return {
        "selectivity": _ratio(matching, total),
        "layout_factor": _ratio(matching, relevant),
        "metadata_factor": _ratio(relevant, scanned),
        "scanning_factor": _ratio(scanned, total),
    }


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def geometric_means(each: Sequence[Mapping[str, float | None]]) -> Indicators:
    """The geometric means over the queries that match a row, in which the product law holds too (Eq. 2).

    Where matching rows are not known, the scanning factor's alone, over the queries that read a row. ``queries`` is how
    many are in the means.
    """
    known = [one for one in each if all(one[name] for name in NAMES)]
    counted = known or [one for one in each if one["scanning_factor"]]
    means: Indicators = {"queries": len(counted)}
    for name in NAMES:
        values = [one[name] for one in counted]
        means[name] = _geometric([value for value in values if value]) if all(values) else None
    return means


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
