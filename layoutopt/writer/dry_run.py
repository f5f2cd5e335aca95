"""The plan and the catalog of a dry run, which makes and measures every block of a load but writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.entries import partition_entries
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.table import Catalog
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.writer.task import WriteJob


def needed_columns(plans: Sequence[Plan], columns: Iterable[str]) -> tuple[str, ...]:
    """Return these columns and all that the plans use, in the schema's order."""
    wanted = set(columns)
    for plan in plans:
        wanted.update(*(query.columns for query in plan.queries), *(f.columns for f in plan.features.features))
        wanted.update(*(layout.ordering_columns for layout in plan.scheme.layouts))
        wanted.update([] if plan.partition_by is None else [plan.partition_by])
    return tuple(name for name in plans[0].schema.names if name in wanted)


def narrow_plan(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan of a table of these columns, without layouts that would have none."""
    layouts = [
        Layout(
            tuple(name for name in layout.columns if name in names),
            layout.features,
            tuple(name for name in layout.master if name in names),
            layout.blocking,
            layout.guides,
            layout.serves,
            tuple(name for name in layout.row_order if name in names),
        )
        for layout in plan.scheme.layouts
    ]
    scheme = Scheme(tuple(layout for layout in layouts if layout.columns))
    indexes = tuple(index for index in plan.indexes if index.subject.columns <= set(names))
    return replace(plan, schema=plan.schema.select(names), scheme=scheme, indexes=indexes)


def dry_run_catalog(plan: Plan, job: WriteJob, blocks: pa.Table) -> Catalog:
    """Return the catalog that a commit of these blocks would leave, without partition values."""
    snapshot = Snapshot(
        number=0,
        parent=None,
        created_at="1970-01-01T00:00:00.000000+00:00",
        operation="rehearsal",
        load_id=job.load_id,
        schema=plan.schema,
        partition_by=plan.partition_by,
        partitions=partition_entries(blocks, plan, job.load_id, dict.fromkeys(job.keys)),
    )
    return Catalog.rehearsed(snapshot, plan, BlockTable.from_arrow(blocks, plan))
