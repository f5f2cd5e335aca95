"""Plans of sources as a session reads them."""

from __future__ import annotations

from functools import partial
from typing import Any

from layoutopt.model.layout import Plan
from layoutopt.planning import automatic, plan
from layoutopt.spark.planning.source_rows import open_source_rows


def make_plan(spark: Any, source: Any, *arguments: Any, **named: Any) -> Plan:
    return plan.make_plan(partial(open_source_rows, spark, source), *arguments, **named)


def propose_plan(spark: Any, source: Any, *arguments: Any, **named: Any) -> Plan:
    return plan.propose_plan(partial(open_source_rows, spark, source), *arguments, **named)


def plan_best(spark: Any, source: Any, *arguments: Any, **named: Any) -> Plan:
    return automatic.plan_best(partial(open_source_rows, spark, source), *arguments, **named)
