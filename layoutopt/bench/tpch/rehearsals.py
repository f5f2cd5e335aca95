"""Tables that are measured, not written: all of a stream with the same partitions in one pass over the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.tpch.experiment import Bench, Variant, plan_step, read_test_queries, replay, table_folder


def rehearsal_steps(bench: Bench, stream: str, chosen: Sequence[Variant]) -> tuple[Step, ...]:
    """Plan and rehearse variants of a stream: a step for those with the same partitions.

    Its product has under ``tables``, by the name of a variant's folder, what its evaluation on the test stream says.
    """
    partitions = dict.fromkeys(variant.partition_by for variant in chosen)
    together = [[one for one in chosen if one.partition_by == column] for column in partitions]
    return tuple(_rehearsal_step(bench, stream, variants) for variants in together)


def _rehearsal_step(bench: Bench, stream: str, variants: Sequence[Variant]) -> Step:
    folders = [table_folder(bench, stream, variant) for variant in variants]
    column = variants[0].partition_by
    key = key_of(f"rehearsed {stream} {column or 'whole'}", {"tables": sorted(folder.name for folder in folders)})
    count = "1 table" if len(variants) == 1 else f"{len(variants)} tables"
    what = f"{count} without partitions" if column is None else f"{count} by {column}"
    return Step(
        f"{stream}: rehearsing {what}: {', '.join(variant.label for variant in variants)}",
        bench.folder / f"{key}.json",
        partial(rehearse_tables, bench, stream, folders),
        tuple(plan_step(bench, stream, variant) for variant in variants),
    )


def rehearse_tables(bench: Bench, stream: str, folders: Sequence[Path]) -> Json:
    """Measure the blocks that loads by these folders' ``plan.json`` would make, and replay the test stream on them."""
    from layoutopt.model.layout import Plan
    from layoutopt.spark.loading.dry_run import rehearse_together

    plans = [Plan.loads((folder / "plan.json").read_bytes()) for folder in folders]
    read = {name for query in read_test_queries(bench, stream) for name in query.columns}
    tables = rehearse_together(bench.spark(), str(bench.data.denormalised), plans, read)
    return {
        "tables": {
            folder.name: {
                **replay(bench, stream, table),
                "planning_seconds": json.loads((folder / "planned.json").read_text())["seconds"],
                "loading_seconds": None,
                "storage_bytes": None,
            }
            for folder, table in zip(folders, tables, strict=True)
        }
    }
