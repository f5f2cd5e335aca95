"""Chapter 3, SOP: filters of the log, rows scanned, block sizes, numbers of features, loading, lower bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from layoutopt.bench.steps import Step
from layoutopt.bench.thesis import measuring, tables, timing
from layoutopt.bench.thesis.figure import Claim, Figure, Measured, Point, Products
from layoutopt.bench.thesis.months import EVERY, months_step, some_months
from layoutopt.bench.thesis.tables import FULL_SCAN, MATCHING, RANGES, UNSORTED, by_month, by_year, rehearsals
from layoutopt.bench.tpch.experiment import Bench, Variant, features_step
from layoutopt.partitioning.block_sizes import min_rows_for

STREAMS: Final = {"uniform": "chapter3", "skewed": "chapter3-skewed"}
MONTH_OF_THESIS: Final = 7_700_000  # rows, 3.7.3
MIN_SIZES: Final = (5_000, 20_000, 50_000, 200_000)  # of figure 3.6, whose text names the first and the last
NUMBERS_OF_FEATURES: Final = (2, 5, 10, 15, 40)
FRACTIONS: Final = (5, 10, 20, 30, 50, 75, 100)


def methods(scale: float) -> tuple[Variant, ...]:
    """What figure 3.5 compares, by month."""
    ranges = [by_month(scale, label, **of) for label, of in RANGES.items()]
    return (*ranges, by_month(scale, "SOP", "sop"))


def methods_by_year(scale: float) -> tuple[Variant, ...]:
    """The same by year, in blocks that are worth a read of their own at small scale factors."""
    return tuple(
        replace(by_year(scale, "", one.method), label=one.label, by=one.by, features=one.features)
        for one in methods(scale)
    )


def _of_both(make: Any, bench: Bench) -> dict[str, Step]:
    return {key: step for stream in STREAMS.values() for key, step in make(bench, stream).items()}


# 3.2: filters are few, and recur.


def _features(bench: Bench, stream: str) -> dict[str, Step]:
    return {stream: features_step(bench, stream)}


def _read_common(curve: measuring.Curve, bench: Bench, products: Products) -> Measured:
    points = [
        Point(name, float(x), y)
        for name, stream in STREAMS.items()
        for x, y in curve(measuring.filters_of(products[stream]), FRACTIONS)
    ]
    return Measured(tuple(points), {"training queries": len(measuring.filters_of(products["chapter3"]))})


# 3.5: rows scanned, and seconds.


def _rows_steps(bench: Bench, stream: str) -> dict[str, Step]:
    return rehearsals(bench, stream, methods(bench.data.scale))


def _read_rows(bench: Bench, products: Products) -> Measured:
    chosen = methods(bench.data.scale)
    points: list[Point] = []
    details: list[Mapping[str, object]] = []
    for name, stream in STREAMS.items():
        found = tables.rehearsed(bench, products, stream, chosen)
        whole = tables.full_scan(found["SOP"], "rows")
        points.append(Point(name, FULL_SCAN, 100.0))
        points += [Point(name, label, 100 * tables.scanned(table, "rows") / whole) for label, table in found.items()]
        points.append(Point(name, MATCHING, 100 * tables.matching_rows(products, stream) / whole))
        details += [{"parameters": name, **each} for each in tables.details_of(found)]
    return Measured(tuple(points), tables.settings_of(bench, "chapter3", chosen), tuple(details))


def _time_steps(bench: Bench, stream: str) -> dict[str, Step]:
    return {stream: timing.times_step(bench, stream, methods_by_year(bench.data.scale))}


def _read_times(kind: str, bench: Bench, products: Products) -> Measured:
    points, settings = [], {}
    for name, stream in STREAMS.items():
        points += [replace(point, series=name) for point in timing.seconds_of(products[stream], kind)]
        settings = timing.settings_of(bench, stream, methods_by_year(bench.data.scale), products[stream])
    return Measured(tuple(points), settings)


# 3.6 and 3.7: the sizes of blocks, and the number of features.


def _sizes(scale: float) -> dict[int, Variant]:
    """A variant for each minSize of the thesis that has at least ten rows here, months being so much smaller."""
    months = {size: round(size * scale / 100) for size in MIN_SIZES}
    mean = min_rows_for(1_000_000) / 1_000_000
    return {
        size: by_month(scale, f"SOP, minSize {size:,}", "sop", block_rows=round(rows / mean), **UNSORTED)
        for size, rows in months.items()
        if rows >= LEAST_SIZE
    }


LEAST_SIZE: Final = 5


def _size_steps(bench: Bench, stream: str) -> dict[str, Step]:
    sizes = tuple(_sizes(bench.data.scale).values())
    return {"months": months_step(bench), **rehearsals(some_months(bench), stream, sizes)}


def _read_sizes(bench: Bench, products: Products) -> Measured:
    bench = some_months(bench)
    sizes = _sizes(bench.data.scale)
    points = []
    for name, stream in STREAMS.items():
        found = tables.rehearsed(bench, products, stream, tuple(sizes.values()))
        needed = tables.matching_rows(products, stream)
        points += [
            Point(name, float(size), tables.scanned(found[variant.label], "rows") / needed)
            for size, variant in sizes.items()
        ]
    settings = tables.settings_of(bench, "chapter3", tuple(sizes.values()))
    return Measured(tuple(points), settings)


def _numbers(scale: float) -> dict[int, Variant]:
    labels = {count: f"SOP, {count} features" for count in NUMBERS_OF_FEATURES}
    return {count: by_month(scale, label, "sop", num_features=count, **UNSORTED) for count, label in labels.items()}


def _number_steps(bench: Bench, stream: str) -> dict[str, Step]:
    """Tables of other features are rehearsed by themselves."""
    steps: dict[str, Step] = {"months": months_step(bench)}
    bench = some_months(bench)
    for count, variant in _numbers(bench.data.scale).items():
        steps |= {f"{key} of {count} features": step for key, step in rehearsals(bench, stream, (variant,)).items()}
    return steps


def _read_numbers(bench: Bench, products: Products) -> Measured:
    bench = some_months(bench)
    points = []
    for name, stream in STREAMS.items():
        for count, variant in _numbers(bench.data.scale).items():
            suffix = f" of {count} features"
            of_count = {key.removesuffix(suffix): product for key, product in products.items() if key.endswith(suffix)}
            (table,) = tables.rehearsed(bench, of_count, stream, (variant,)).values()
            needed = tables.matching_rows(of_count, stream)
            points.append(Point(name, float(count), tables.scanned(table, "rows") / needed))
    return Measured(tuple(points), tables.settings_of(bench, "chapter3", tuple(_numbers(bench.data.scale).values())))


def _read_vectors(bench: Bench, products: Products) -> Measured:
    points = [
        Point(name, float(count), products[stream][str(count)]["mean"])
        for name, stream in STREAMS.items()
        for count in NUMBERS_OF_FEATURES
    ]
    return Measured(tuple(points), {"scale factor": bench.data.scale, "partitions": tables.MONTH})


def _vector_steps(bench: Bench, stream: str) -> dict[str, Step]:
    return {
        "months": months_step(bench),
        stream: measuring.vectors_step(some_months(bench), stream, NUMBERS_OF_FEATURES, tables.MONTH),
    }


# 3.8 and the bounds.


def _stage_steps(bench: Bench) -> dict[str, Step]:
    sop = methods(bench.data.scale)[-1]
    return {"stages": measuring.stages_step(bench, "chapter3", sop)}


def _read_stages(bench: Bench, products: Products) -> Measured:
    product = products["stages"]
    points = tuple(Point("one month", stage, product["seconds"][stage]) for stage in measuring.STAGES)
    kept = ("rows of the month", "blocks", "feature vectors")
    return Measured(points, {"scale factor": bench.data.scale, **{name: product[name] for name in kept}})


def _bound_steps(bench: Bench, stream: str) -> dict[str, Step]:
    return {**_rows_steps(bench, stream), f"counted {stream}": measuring.counts_step(bench, stream, tables.MONTH)}


def _read_bounds(bench: Bench, products: Products) -> Measured:
    chosen = methods(bench.data.scale)
    least = min_rows_for(chosen[-1].block_rows)
    points = []
    for name, stream in STREAMS.items():
        sop = tables.rehearsed(bench, products, stream, chosen)["SOP"]
        counts = products[f"counted {stream}"]["rows"]
        needed = sum(map(sum, counts))
        points += [
            Point(name, "rows that match", 1.0),
            Point(name, "lower bound of blocks", measuring.bound(counts, least) / needed),
            Point(name, "SOP", tables.scanned(sop, "rows") / needed),
        ]
    return Measured(tuple(points), {**tables.settings_of(bench, "chapter3", chosen), "least rows of a block": least})


def _skewed(place: str, claims: Sequence[tuple[str, float]]) -> tuple[Claim, ...]:
    return tuple(
        Claim(f"skewed: SOP over {other}", share, place, ("skewed", "SOP"), ("skewed", other), better="less")
        for other, share in claims
    )


def _shares(place: str, of_ranges: Mapping[str, float], of_scan: Mapping[str, float]) -> tuple[Claim, ...]:
    """The claims about seconds: SOP over each range partitioning, and each method over a full scan."""
    ours = ("uniform", "SOP")
    return (
        *(
            Claim(
                f"{label} over a full scan",
                share,
                place,
                ("uniform", label),
                ("uniform", FULL_SCAN),
                better="less" if label == "SOP" else "",
            )
            for label, share in of_scan.items()
        ),
        *(
            Claim(f"SOP over {label}", share, place, ours, ("uniform", label), better="less")
            for label, share in of_ranges.items()
        ),
    )


_FILTERS: Final = "The thesis's log is Conviva's; these are the training streams, drawn from templates."
_MONTHS: Final = f"On every {EVERY}th month."
_TIMED: Final = (
    "Tables by year in fewer, larger blocks than of 3.5a: at small scale factors a "
    "hundredth of a month is no row group to time, and a query takes mostly what any Spark job takes. "
    "The thesis's engine was Shark, on a cluster, over text; range1 and range2 are tables of ours without features."
)

FIGURES: Final[tuple[Figure[Bench], ...]] = (
    Figure(
        "3.2a",
        "A few filters are used by most queries",
        "figure 3.2 (a), 3.2.1",
        "% of the queries",
        "% of the distinct predicates, the most frequent first",
        partial(_of_both, _features),
        partial(_read_common, measuring.by_frequency),
        "lines",
        (Claim("queries that use the most frequent 10 % of the filters", 90, "3.2.1", ("uniform", 10.0), unit="%"),),
        _FILTERS,
    ),
    Figure(
        "3.2b",
        "Filters recur",
        "figure 3.2 (b), 3.2.1",
        "% of the queries",
        "% of the log seen",
        partial(_of_both, _features),
        partial(_read_common, measuring.by_prefix),
        "lines",
        (Claim("queries that use filters of the first 30 % of the log", 80, "3.2.1", ("uniform", 30.0), unit="%"),),
        _FILTERS,
    ),
    Figure(
        "3.5a",
        "Rows scanned by SOP",
        "figure 3.5 (a), 3.7.3",
        "% of a full scan",
        "method",
        partial(_of_both, _rows_steps),
        _read_rows,
        "bars",
        (
            Claim("range1", 25, "3.7.3", ("uniform", "range1"), unit="%"),
            Claim("range2", 19, "3.7.3", ("uniform", "range2"), unit="%"),
            Claim("rows that SOP scans", 3.9, "3.7.3", ("uniform", "SOP"), unit="%", better="less"),
            Claim("rows that match", 0.7, "3.7.3", ("uniform", MATCHING), unit="%"),
            Claim("range2 over SOP", 5, "3.7.3", ("uniform", "range2"), ("uniform", "SOP"), better="more"),
            *_skewed("3.7.3", (("range1", 0.08), ("range2", 0.10))),
        ),
        "The thesis's data are of scale factor 100, with 7.7 million rows a month; a month has as many blocks here.",
        log="y",
    ),
    Figure(
        "3.5b",
        "Response time, files not in memory",
        "figure 3.5 (b), 3.7.3",
        "seconds",
        "method",
        partial(_of_both, _time_steps),
        partial(_read_times, timing.COLD),
        "bars",
        (
            *_shares("3.7.3", {"range1": 0.23, "range2": 0.30}, {"range1": 0.30, "range2": 0.21, "SOP": 0.07}),
            *_skewed("3.7.3", (("range1", 0.20), ("range2", 0.23))),
        ),
        _TIMED,
        timed=True,
    ),
    Figure(
        "3.5c",
        "Response time, files in memory",
        "figure 3.5 (c), 3.7.3",
        "seconds",
        "method",
        partial(_of_both, _time_steps),
        partial(_read_times, timing.WARM),
        "bars",
        (
            *_shares("3.7.3", {"range1": 0.30, "range2": 0.32}, {}),
            *_skewed("3.7.3", (("range1", 0.22), ("range2", 0.29))),
        ),
        f"{_TIMED} The thesis cached whole tables in Spark; here files are in the system's cache.",
        timed=True,
    ),
    Figure(
        "3.6",
        "Effect of minSize",
        "figure 3.6, 3.7.3",
        "rows scanned over rows that match",
        "minSize, scaled to a month of the thesis's size",
        partial(_of_both, _size_steps),
        _read_sizes,
        "lines",
        (
            Claim(
                "uniform: minSize 200k over 5k", 2, "3.7.3", ("uniform", 200_000.0), ("uniform", 5_000.0), better="less"
            ),
            Claim(
                "skewed: minSize 200k over 5k", 2, "3.7.3", ("skewed", 200_000.0), ("skewed", 5_000.0), better="less"
            ),
        ),
        f"{_MONTHS} As many features as the analysis finds worth having, not 15.",
        log="x",
    ),
    Figure(
        "3.7",
        "Effect of numFeat on rows",
        "figure 3.7, 3.7.3",
        "rows scanned over rows that match",
        "numFeat",
        partial(_of_both, _number_steps),
        _read_numbers,
        "lines",
        (Claim("uniform, 15 features", 3.9 / 0.7, "3.9 % over 0.7 %, 3.7.3", ("uniform", 15.0), better="less"),),
        f"{_MONTHS} A table has only so many of the log's features, the heaviest, to be blocked and skipped by.",
    ),
    Figure(
        "3.7-vectors",
        "Effect of numFeat on distinct feature vectors",
        "figure 3.7, 3.7.3",
        "distinct vectors of a month, on average",
        "numFeat",
        partial(_of_both, _vector_steps),
        _read_vectors,
        "lines",
        (Claim("uniform, 15 features", 1315, "3.7.3, Loading Time", ("uniform", 15.0), unit="vectors"),),
        f"{_MONTHS} The thesis counts those of a month of 7.7 million rows.",
        log="y",
    ),
    Figure(
        "3.8",
        "Loading time by stage, one month",
        "figure 3.8, 3.7.3",
        "seconds",
        "stage",
        _stage_steps,
        _read_stages,
        "bars",
        (Claim("the whole workflow, of 7.7 million rows", 60, "3.7.3", ("one month", "all stages"), unit="s"),),
        "A month here is so many times smaller, and the machine another: the seconds are for the shares of the stages.",
        timed=True,
    ),
    Figure(
        "3-bounds",
        "Rows scanned beside what no blocks can beat",
        "figures 3.5 (a) and 3.6, 3.7.3",
        "times the rows that match",
        "",
        partial(_of_both, _bound_steps),
        _read_bounds,
        "bars",
        (
            Claim(
                "rows that SOP scans over those that match",
                3.9 / 0.7,
                "3.9 % over 0.7 %, 3.7.3",
                ("uniform", "SOP"),
                better="less",
            ),
        ),
        "The bound: of each month with a matching row, those rows or the smallest block, whichever is more.",
    ),
)
