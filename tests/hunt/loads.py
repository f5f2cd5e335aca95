"""Tables of a world by the real way: a plan, and a load by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from layoutopt.methods.interface import PlanRequest
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.query import Query
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.sql.scans import find_scans
from tests.hunt.tables import Laid
from tests.hunt.ways import Sessions
from tests.spark.plans import make_plan

METHODS = ("sop", "gsop-r", "zorder")


def by_loads(sessions: Sessions, root: Path, conditions: Sequence[str]) -> Iterator[Laid]:
    """A table for each of some methods, two of them with partitions; files and their source lie in a folder."""
    session, world = sessions.plain, sessions.world
    (root / "source").mkdir()
    pq.write_table(world.rows, root / "source" / "rows.parquet")
    source = session.read.parquet(str(root / "source"))
    schema = schema_of(source)
    filters = [find_scans(f"SELECT * FROM t WHERE {text}", {"t": schema})[0].filter for text in conditions]
    features = tuple(Feature(each.predicates, 1.0 + number) for number, each in enumerate(filters))
    settings = SessionSettings(time_zone=world.zone)
    queries = tuple(Query(number, "t", schema.names, each) for number, each in enumerate(filters))
    document = FeaturesDocument("t", schema, FeatureSet(features, settings), queries)
    fit = [given.name for given in world.given[1:] if given.family in ("int", "date", "boolean", "tinyint")]
    for number, method in enumerate(METHODS):
        partition_by = fit[number % len(fit)] if number and fit else None
        plan = make_plan(
            session, source, document, PlanRequest(method=method, partition_by=partition_by, block_rows=15)
        )
        load(session, source, root / method, plan)
        yield Laid(open_table(str(root / method)), f"{method} loaded", partition_by)
