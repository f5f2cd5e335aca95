"""Chapter 4, GSOP: cells and tids, column groups, estimates, local features, memory, loading, response times."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jobs.bench.cold_times import FULL_SCAN, JOINS, mean_times, time_settings, timed_texts, times_step
from jobs.bench.experiment import (
    MAX_VECTORS,
    SEED,
    Experiment,
    Variant,
    full_scan,
    memory_of,
    scanned,
    seconds_of,
    size_of,
    table_details,
)
from jobs.bench.figure import Measure, Measured, Point
from jobs.bench.plots import THESIS
from jobs.bench.steps import Json, Step, how_made, key_of
from jobs.bench.tpch import YEAR, Tpch, write_denormalised, year_block_rows
from jobs.bench.tpch_joins import joins_step
from layoutopt.cli.demo import RAW_TABLES
from layoutopt.model.query import group_queries
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.grouping import full_scan as full_scan_cost
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem
from layoutopt.search.rows import Estimate

STREAM: Final = "chapter4"
PAR_D: Final = "PAR-d"
GROUPINGS: Final = {
    "SOP": "sop", "GSOP-single": "gsop-single", "GSOP": "gsop", "GSOP-hc": "gsop-hillclimb", "GSOP-hy": "gsop-hyrise",
}  # fmt: skip
OF_GROUPING: Final = ("GSOP", "GSOP-hc", "GSOP-hy")
OF_LAYOUTS: Final = (PAR_D, JOINS, "SOP", "GSOP-single", "GSOP")
ESTIMATES: Final[Mapping[Estimate, str]] = {
    "full": "Full Compt.", "block": "Block Est.", "selectivity": "Sel. Est.", "coarse": "ours: coarse",
}  # fmt: skip

# The rows of a segment of which a search for column groups has samples.
SEGMENT_ROWS: Final = 1_000_000

# 4.7.5 gives ten numbers for "8 column groups".
GROUPS_OF_THESIS: Final = (21, 48, 23, 100, 23, 100, 26, 101, 6, 1)
PHASES: Final = ("analysis", "planning", "loading")


def chapter4(tpch: Tpch) -> dict[str, Measure]:
    """Return the measures of the chapter's figures."""
    return {
        "4.8a": _cells(tpch, OF_LAYOUTS),
        "4.8b": _times(tpch, OF_LAYOUTS),
        "4.9a": _cells(tpch, OF_GROUPING),
        "4.9b": _times(tpch, OF_GROUPING),
        "4-groups": _groups(tpch),
        "4-memory": _memory(tpch),
        "4.10a": _searches(tpch, "seconds"),
        "4.10b": _searches(tpch, "objective"),
        "4-local-features": _local_features(tpch),
        "4.11a": measure_loads(tpch, tpch.stream(STREAM), methods(tpch), PAR_D),
        "4.11b": _loads_of_normalised(tpch),
    }


def methods(tpch: Tpch) -> tuple[Variant, ...]:
    """Return what chapter 4 compares, by year."""
    return tuple(tpch.by_year(label, method, written=True) for label, method in GROUPINGS.items())


def _cells(tpch: Tpch, labels: Sequence[str]) -> Measure:
    """Measure cells and tids as shares of what a full scan of the denormalised table reads."""
    stream, plain = tpch.stream(STREAM), tpch.plain_parquet()
    variants = (plain, *methods(tpch))
    tables = stream.tables(variants)
    joins = joins_step(tpch, stream, plain.block_rows) if JOINS in labels else None

    def read() -> Measured:
        evaluated = tables.read()
        whole = evaluated[plain.label]["full_scan"]
        shown: dict[str, Mapping[str, Any]] = {**evaluated, PAR_D: evaluated[plain.label]}
        if joins is not None:  # as shares of the rows and cells of the denormalised table
            product = joins.read()
            denormalised = {unit: whole[unit] for unit in ("rows_scanned", "cells_scanned")}
            shown[JOINS] = {**product, "full_scan": {**product["full_scan"], **denormalised}}
        points = [
            Point(unit, label, 100 * scanned(shown[label], unit) / full_scan(evaluated[plain.label], "cells"))
            for label in labels
            for unit in ("cells", "tids")
        ]
        details = table_details({label: shown[label] for label in labels})
        return Measured(points, tpch.settings(stream, variants), details)

    return Measure([*tables.steps, *([] if joins is None else [joins])], read)


def _times(tpch: Tpch, labels: Sequence[str]) -> Measure:
    stream, variants = tpch.stream(STREAM), methods(tpch)
    step = times_step(tpch, stream, variants, joins=True)

    def read() -> Measured:
        renamed = [
            Point(point.series, PAR_D if point.x == FULL_SCAN else point.x, point.value)
            for point in mean_times(step.read())
        ]
        points = [point for point in renamed if point.x in labels]
        return Measured(points, time_settings(tpch, stream, variants, step.read()))

    return Measure([step], read)


def _groups(tpch: Tpch) -> Measure:
    """Measure how many layouts some training query reads."""
    stream = tpch.stream(STREAM)
    variants = [variant for variant in methods(tpch) if variant.label != "SOP"]

    def read() -> Measured:
        points = [Point("column groups", variant.label, len(stream.layouts_read(variant))) for variant in variants]
        return Measured(points, tpch.settings(stream, variants))

    return Measure([stream.plan(variant) for variant in methods(tpch)], read)


def _local_features(tpch: Tpch) -> Measure:
    stream = tpch.stream(STREAM)
    (gsop,) = (variant for variant in methods(tpch) if variant.label == "GSOP")

    def read() -> Measured:
        counts = [len(layout.features) for layout in stream.layouts_read(gsop)]
        points = [
            Point(series, float(place), float(count))
            for series, numbers in (("ours", counts), (THESIS, GROUPS_OF_THESIS))
            for place, count in enumerate(sorted(numbers, reverse=True), 1)
        ]
        return Measured(points, tpch.settings(stream, [gsop]))

    return Measure([stream.plan(variant) for variant in methods(tpch)], read)


def _memory(tpch: Tpch) -> Measure:
    stream = tpch.stream(STREAM)
    texts = timed_texts(stream)

    def memory_step(variant: Variant) -> Step:
        folder = stream.folder(variant)

        def make() -> Json:
            from layoutopt.scan.table import open_table

            return memory_of(open_table(str(folder / "table")), texts)

        product = f"{folder.name}/memory-{len(texts)}.json"
        return stream.step(f"measuring the memory of queries on {variant.label}", product, make, stream.load(variant))

    steps = {variant.label: memory_step(variant) for variant in methods(tpch) if variant.label != "SOP"}

    def read() -> Measured:
        products = {label: step.read() for label, step in steps.items()}
        points = [Point("mean of the queries", label, product["mean"] / 1e6) for label, product in products.items()]
        details = [
            {
                "method": label,
                "mean, MB": round(product["mean"] / 1e6, 2),
                "most, MB": round(product["most"] / 1e6, 2),
                "queries that read several layouts": product["assembled"],
            }
            for label, product in products.items()
        ]
        settings = {"scale factor": tpch.scale, "engine": "layoutopt's own readers, with DuckDB"}
        return Measured(points, settings, details)

    return Measure(list(steps.values()), read)


def _searches(tpch: Tpch, unit: str) -> Measure:
    stream = tpch.stream(STREAM)
    steps = {estimate: _search_step(tpch, stream, estimate) for estimate in ESTIMATES}

    def read() -> Measured:
        products = {estimate: step.read() for estimate, step in steps.items()}
        best = products["full"]["objective"] if unit == "objective" else 1.0
        points = [Point("search", label, products[estimate][unit] / best) for estimate, label in ESTIMATES.items()]
        details = [
            {
                "estimate": label,
                "objective, % of a full scan": round(100 * products[estimate]["fraction"], 3),
                "column groups": products[estimate]["groups"],
                "seconds": round(products[estimate]["seconds"], 2),
            }
            for estimate, label in ESTIMATES.items()
        ]
        settings = {"scale factor": tpch.scale, "objective": "cells and tids of the training queries"}
        return Measured(points, settings, details)

    return Measure(list(steps.values()), read)


def _search_step(tpch: Tpch, stream: Experiment, estimate: Estimate) -> Step:
    """Search for column groups by an estimate; the product has the exact objective that was reached."""
    block_rows = year_block_rows(tpch.scale)

    def make() -> Json:
        problem = _sampled_problem(stream, block_rows)
        results = []
        seconds = seconds_of(lambda: results.append(search_groups(problem, find_partitioner(WARD), estimate)))
        best = results[0].best
        fraction = best.cost / full_scan_cost(problem)
        return {"seconds": seconds, "objective": best.cost, "fraction": fraction, "groups": len(best.groups)}

    product = f"{key_of(f'search {stream.name} {estimate}', {'block_rows': block_rows})}.json"
    return stream.step(f"searching column groups by the {estimate} estimate", product, make, stream.features())


def _sampled_problem(stream: Experiment, block_rows: int) -> Problem:
    """Return the samples and the workload as the search for column groups takes them."""
    from layoutopt.methods.interface import PlanningInput, PlanRequest
    from layoutopt.methods.strategies import planning_problem
    from layoutopt.planning.source_profile import CountRequest, sample_histograms

    document = stream.document()
    queries, rows = tuple(group_queries(document.queries)), stream.source_rows(document.schema, YEAR)
    counting = CountRequest(rows, queries, document.schema, MAX_VECTORS, lambda _: None)
    histograms = sample_histograms(counting, document.features)
    request = PlanRequest(
        "gsop", YEAR, block_rows=block_rows, segment_rows=SEGMENT_ROWS, max_vectors=MAX_VECTORS, seed=SEED
    )
    return planning_problem(PlanningInput(request, document.schema, document.features, queries, histograms))


def measure_loads(tpch: Tpch, stream: Experiment, variants: Sequence[Variant], baseline: str) -> Measure:
    """Measure loading in the thesis's two phases, preparing (analysis and planning) and writing, beside a rewrite."""
    evaluations = {variant.label: stream.evaluation(variant) for variant in variants}
    rewrite = stream.rewrite(variants[0].block_rows)

    def read() -> Measured:
        analysis = how_made([stream.features()])[-1].seconds
        rewritten = rewrite.read()
        points, details = [Point("loading", baseline, rewritten["seconds"])], []
        for variant in variants:
            product = evaluations[variant.label].read()
            phases = (analysis, product["planning_seconds"], product["loading_seconds"])
            points += [Point(phase, variant.label, seconds) for phase, seconds in zip(PHASES, phases, strict=True)]
            details.append(
                {
                    "method": variant.label,
                    "layouts": len(stream.plan_of(variant).scheme.layouts),
                    "bytes on disk, MB": round(product["storage_bytes"] / 1e6, 2),
                    "of the source rewritten in such row groups": round(
                        product["storage_bytes"] / rewritten["bytes"], 3
                    ),
                }
            )
        return Measured(points, tpch.settings(stream, variants), details)

    return Measure([*evaluations.values(), rewrite], read)


def _loads_of_normalised(tpch: Tpch) -> Measure:
    """Measure loads with the join before the first phase; the baseline rewrites the tables unjoined."""
    of_joined = measure_loads(tpch, tpch.stream(STREAM), methods(tpch), PAR_D)
    joining = _joining_step(tpch)

    def read() -> Measured:
        measured, joined = of_joined.read(), joining.read()
        points = [point for point in measured.points if point.x != PAR_D]
        points += [Point("joining", label, joined["joining"]) for label in GROUPINGS]
        points.append(Point("loading", JOINS, joined["rewriting"]))
        return Measured(points, measured.settings)

    return Measure([*of_joined.steps, joining], read)


def _joining_step(tpch: Tpch) -> Step:
    """Join the generator's tables onto lineitem once more, and rewrite them as they are."""
    source = tpch.source

    def make() -> Json:
        scratch = source.folder / "joined-again"
        joining = seconds_of(lambda: write_denormalised(tpch.spark(), tpch.data.raw, scratch))
        written = size_of(scratch)
        shutil.rmtree(scratch)

        def rewrite() -> None:
            for table in RAW_TABLES:
                rows = tpch.spark().read.parquet(str(tpch.data.raw / f"{table}.parquet"))
                rows.write.mode("overwrite").option("compression", "zstd").parquet(str(scratch))

        rewriting = seconds_of(rewrite)
        shutil.rmtree(scratch)
        return {"joining": joining, "rewriting": rewriting, "bytes": written}

    name = "joining the normalised tables once more, and rewriting them as they are"
    return Step(name, source.folder / "joining.json", make, (source.made,))
