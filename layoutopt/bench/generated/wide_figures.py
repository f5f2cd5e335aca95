"""Figures 3.9, 3.10, 4.12 and 5.10, of tables and logs that nobody else has: synthetic ones of their stated shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from layoutopt.bench.generated.shapes import (
    BLOCKS,
    BUDGETS,
    PAR,
    ROWS,
    TIMES,
    Shapes,
    copies,
    many_features,
    read_groups,
    read_loading,
    read_many_features,
    read_seconds,
    read_sessions,
    read_star,
    read_vectors,
    session_variants,
    sessions_read,
    sessions_written,
    star_variants,
    stars_read,
    stars_written,
    vectors_counted,
)
from layoutopt.bench.thesis.figure import ALL, Better, Claim, Figure
from layoutopt.bench.thesis.suite import Suite
from layoutopt.bench.thesis.tables import MATCHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STAR: Final = (
    f"Synthetic, in {BLOCKS} blocks, of SDSS's stated shape: 453 columns, 1,755 training queries of 13.6 columns on "
    "average, 585 later. The original has 260 million rows, laid out 4 million at a time (400 blocks of 10,000), and "
    "600 test queries; what its columns and filters are the thesis does not say."
)
_SESSIONS: Final = (
    "Synthetic, of Conviva's stated shape: 104 columns, 674 training and 61 later queries, seven days. The original "
    "has 680 million rows, in blocks of 50,000 at least."
)
_TIMES: Final = "The thesis's seconds are of a cluster."
_SHOWN: Final = "Its ratios of response times are shown beside ours of cells, and not judged."
_QUERIES: Final = "mean of the queries"


def _gains(series: str, *, judged: bool) -> tuple[Claim, ...]:
    better: Better = "more" if judged else ""
    return tuple(
        Claim(f"{other} over GSOP", times, "4.7.6", (series, other), (series, "GSOP"), better=better)
        for other, times in ((PAR, 4.7), ("SOP", 2.7), ("GSOP-single", 1.3))
    )


def _gains_of_copies(series: str, *, judged: bool) -> tuple[Claim, ...]:
    better: Better = "more" if judged else ""
    return tuple(
        Claim(
            f"GSOP over GSOP-R {budget:g}",
            times,
            "5.7.3",
            (series, "GSOP"),
            (series, f"GSOP-R {budget:g}"),
            better=better,
        )
        for budget, times in zip(BUDGETS, (1.4, 1.8), strict=True)
    )


def _of_sessions(series: str, claims: Sequence[tuple[str, str, str, float]]) -> tuple[Claim, ...]:
    """Claims that a method reads or takes at most such a share of another."""
    return tuple(
        Claim(text, share, "3.7.4", (series, of), (series, over), better="less") for text, of, over, share in claims
    )


_SOP: Final = "SOP, 40 features"

_FIGURES: Final[tuple[Figure[Shapes], ...]] = (
    Figure(
        "3.9a",
        "Rows scanned of an access log",
        "figure 3.9 (a), 3.7.4",
        "% of a full scan",
        "method",
        sessions_written,
        read_sessions,
        "bars",
        (
            *_of_sessions("rows", (("SOP over range", _SOP, "range", 0.23 / 1.81),)),
            Claim("range", 1.81, "3.7.4", ("rows", "range"), unit="%"),
            Claim("SOP", 0.23, "3.7.4", ("rows", _SOP), unit="%"),
            Claim("rows that match", 0.03, "3.7.4", ("rows", MATCHING), unit="%"),
        ),
        _SESSIONS,
        "y",
    ),
    Figure(
        "3.9c",
        "Response time on an access log, files in memory",
        "figure 3.9 (c), 3.7.4",
        "milliseconds",
        "method",
        sessions_read,
        partial(read_seconds, session_variants),
        "bars",
        _of_sessions(_QUERIES, (("SOP over range", _SOP, "range", 8.1 / 16),)),
        f"{_SESSIONS} {_TIMES}",
        timed=True,
    ),
    Figure(
        "3.10a",
        "Effect of numFeat on an access log",
        "figure 3.10 (a), 3.7.4",
        "rows scanned over rows that match",
        "numFeat",
        many_features,
        read_many_features,
        "lines",
        (),
        f"{_SESSIONS} The thesis has no numbers, but says: far fewer rows up to 20 features, then flat.",
    ),
    Figure(
        "3.10b",
        "Effect of numFeat on distinct feature vectors of an access log",
        "figure 3.10 (b), 3.7.4",
        "distinct vectors of a day, on average",
        "numFeat",
        vectors_counted,
        read_vectors,
        "lines",
        (),
        f"{_SESSIONS} The thesis has no numbers, but says: their number is small.",
    ),
    Figure(
        "4.12",
        "Cells and tids read of a table of 453 columns",
        "figure 4.12, 4.7.6",
        "% of a full scan's cells",
        "layout",
        partial(stars_written, star_variants),
        partial(read_star, star_variants),
        "stacked",
        _gains(ALL, judged=False),
        f"{_STAR} {_SHOWN}",
    ),
    Figure(
        "4.12-groups",
        "Column groups of a table of 453 columns",
        "4.7.6",
        "layouts",
        "grouping",
        partial(stars_written, star_variants),
        read_groups,
        "bars",
        (
            Claim("GSOP", 2, "4.7.6", ("column groups", "GSOP"), unit="groups"),
            Claim("GSOP-hc", 20, "4.7.6", ("column groups", "GSOP-hc"), unit="groups"),
            Claim("GSOP-hy", 8, "4.7.6", ("column groups", "GSOP-hy"), unit="groups"),
        ),
        f"{_STAR} Groups that some unseen query reads.",
    ),
    Figure(
        "4.12-loading",
        "Planning and loading a table of 453 columns",
        "figure 4.12, 4.7.6",
        "seconds",
        "layout",
        partial(stars_written, star_variants),
        read_loading,
        "stacked",
        (),
        f"{_STAR} The thesis has no numbers. Planning is the search alone, without the rehearsal that foretells bytes.",
        timed=True,
    ),
    Figure(
        "4.12-seconds",
        "Response time of an average query of a table of 453 columns",
        "figure 4.12, 4.7.6",
        "milliseconds",
        "layout",
        partial(stars_read, star_variants),
        partial(read_seconds, star_variants),
        "bars",
        _gains(_QUERIES, judged=True),
        f"{_STAR} {_TIMES}",
        timed=True,
    ),
    Figure(
        "5.10",
        "Cells and tids read of a table of 453 columns, with copies",
        "figure 5.10, 5.7.3",
        "% of a full scan's cells",
        "scheme",
        partial(stars_written, copies),
        partial(read_star, copies),
        "stacked",
        _gains_of_copies(ALL, judged=True),
        f"{_STAR} The thesis's ratios are of query performance.",
    ),
    Figure(
        "5.10-seconds",
        "Response time of an average query of a table of 453 columns, with copies",
        "figure 5.10, 5.7.3",
        "milliseconds",
        "scheme",
        partial(stars_read, copies),
        partial(read_seconds, copies),
        "bars",
        _gains_of_copies(_QUERIES, judged=True),
        f"{_STAR} {_TIMES}",
        timed=True,
    ),
)
FIGURES: Final[Mapping[str, Figure[Shapes]]] = MappingProxyType({figure.name: figure for figure in _FIGURES})


def wide_suite(rows: int | None, root: Path, spark: Callable[[], SparkSession]) -> Suite[Shapes]:
    """The figures on tables of so many rows, the access log of four times as many."""
    size = ROWS if rows is None else rows
    bench = Shapes(size, root, spark)
    return Suite(
        name="wide",
        title="The wide tables of Sun 2017, measured by layoutopt on synthetic ones",
        about=f"Synthetic tables of the stated shapes of SDSS ({size:,} rows) and Conviva ({TIMES * size:,}), unseen "
        "queries; the thesis had 260 and 680 million rows of the real ones.",
        command=f"layoutopt bench wide --rows {size}",
        size=size,
        figures=FIGURES,
        bench=bench,
        folder=bench.folder / "results",
    )
