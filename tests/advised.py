"""An advice to print and to show."""

from __future__ import annotations

from layoutopt.advice import Advice, FilterProfile, LayoutAdvice, Period, Reading, StatementAdvice

GB = 1e9


def layout(method: str, share: float, *, rehearsed: bool = True, columns: tuple[str, ...] = ()) -> LayoutAdvice:
    """A layout that reads a share of a hundred gigabytes, at five a terabyte."""
    reads = Reading(100 * GB * share, share, spread=0.06, error=0.08)
    return LayoutAdvice(
        method, columns, 1, ("kind",), reads, rehearsed, 9 * GB if rehearsed else None, share / 2, 0.4 - share / 2
    )


def advice(recommends: bool = True) -> Advice:
    """Three layouts and a statement; what is read now is four fifths."""
    layouts = (layout("gsop", 0.1), layout("cuts", 0.2, rehearsed=False), layout("sort", 0.4, columns=("day",)))
    statement = "ALTER TABLE events SET SORTED BY (day)"
    return Advice(
        source="events.parquet",
        log="my log.jsonl",
        table="events",
        rows=1_000_000,
        files=8,
        stored=10 * GB,
        partition_by="year",
        block_rows=10_000,
        queries=1_234,
        skipped=3,
        asked=(
            FilterProfile(("day", "kind"), 34, 60 * GB, "SELECT 1 FROM events WHERE kind = '<b>'"),
            FilterProfile((), 1_200, GB, ""),
        ),
        full=Reading(100 * GB, 1.0),
        now=Reading(80 * GB, 0.8),
        period=Period("month", 40_000, "by the 30.0 days of the log"),
        price=5.0,
        costs_now=0.4,
        layouts=layouts,
        recommended=layouts[0] if recommends else None,
        writing=0.05,
        statements=(StatementAdvice("ducklake", statement, layouts[2], 0.15),),
    )
