"""What loading costs, in the thesis's two phases: preparing (analysis and planning), and writing the table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from layoutopt.bench.steps import Json, Step, how_made
from layoutopt.bench.thesis import tables
from layoutopt.bench.thesis.figure import Measured, Point, Products
from layoutopt.bench.tpch.denormalise import RAW_TABLES, write_denormalised
from layoutopt.bench.tpch.experiment import (
    Bench,
    Variant,
    data_step,
    features_step,
    rewrite_step,
    size_of,
    table_folder,
)
from layoutopt.model.layout import Layout, Plan

PHASES = ("analysis", "planning", "loading")


def steps(bench: Bench, stream: str, variants: Sequence[Variant]) -> dict[str, Step]:
    """Load each variant, and rewrite the source as it is."""
    return {**tables.loads(bench, stream, variants), "rewritten": rewrite_step(bench, variants[0].block_rows)}


def read(bench: Bench, stream: str, variants: Sequence[Variant], products: Products, baseline: str) -> Measured:
    """The seconds of each phase, for the baseline and each variant."""
    (analysed,) = [
        made.seconds for made in how_made([features_step(bench, stream)]) if made.product.name.startswith(stream)
    ]
    points = [Point("loading", baseline, products["rewritten"]["seconds"])]
    details: list[Mapping[str, object]] = []
    for variant in variants:
        product = tables.loaded(products, stream, variant)
        phases = (analysed, product["planning_seconds"], product["loading_seconds"])
        points += [Point(phase, variant.label, seconds) for phase, seconds in zip(PHASES, phases, strict=True)]
        details.append(_details(bench, stream, variant, product, products["rewritten"]))
    return Measured(tuple(points), tables.settings_of(bench, stream, variants), tuple(details))


def _details(
    bench: Bench, stream: str, variant: Variant, product: Mapping[str, Any], rewritten: Mapping[str, Any]
) -> dict[str, object]:
    return {
        "method": variant.label,
        "layouts": len(layouts_of(bench, stream, variant)),
        "bytes on disk, MB": round(product["storage_bytes"] / 1e6, 2),
        "of the source rewritten in such row groups": round(product["storage_bytes"] / rewritten["bytes"], 3),
    }


def layouts_of(bench: Bench, stream: str, variant: Variant) -> tuple[Layout, ...]:
    """The layouts of a variant's plan, which must have been made."""
    plan = Plan.loads((table_folder(bench, stream, variant) / "plan.json").read_bytes())
    return plan.scheme.layouts


def layouts_read(bench: Bench, stream: str, variant: Variant) -> tuple[Layout, ...]:
    """Those of them with a column that some training query reads."""
    plan = Plan.loads((table_folder(bench, stream, variant) / "plan.json").read_bytes())
    used = {column for query in plan.queries for column in query.columns}
    return tuple(layout for layout in plan.scheme.layouts if used & set(layout.columns))


def joining_step(bench: Bench) -> Step:
    """Join the generator's tables onto lineitem once more, and rewrite them as they are."""

    def make() -> Json:
        scratch = bench.folder / "joined-again"
        started = time.perf_counter()
        write_denormalised(bench.spark(), bench.data.raw, scratch)
        joining = time.perf_counter() - started
        written = size_of(scratch)
        shutil.rmtree(scratch)
        started = time.perf_counter()
        for table in RAW_TABLES:
            rows = bench.spark().read.parquet(str(bench.data.raw / f"{table}.parquet"))
            rows.write.mode("overwrite").option("compression", "zstd").parquet(str(scratch))
        rewriting = time.perf_counter() - started
        shutil.rmtree(scratch)
        return {"joining": joining, "rewriting": rewriting, "bytes": written}

    name = "joining the normalised tables once more, and rewriting them as they are"
    return Step(name, bench.folder / "joining.json", make, (data_step(bench),))
