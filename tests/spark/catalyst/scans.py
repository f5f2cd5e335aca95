"""What Spark's optimiser leaves as the condition of a scan, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layoutopt.model.schema import Column, Schema
from layoutopt.spark.catalyst.predicates import Condition, read_condition
from layoutopt.spark.catalyst.rule import add_rule, plan_to_dataframe, remove_rule, to_java_schema
from layoutopt.spark.core.sessions import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEVER = ["Literal", "boolean", [], {"value": False}]
ALWAYS = ["Literal", "boolean", [], {"value": True}]


class Scans:
    """A session with a registered empty table, which tells the conditions of its scans.

    Args:
        spark: the session.
        types: the table's columns.
        name: the table's name.
    """

    def __init__(self, spark: SparkSession, types: Mapping[str, str], name: str = "t") -> None:
        self.spark, self.name = spark, name
        self.schema = Schema(tuple(Column(column, kind) for column, kind in types.items()))
        self._asked: list[str] = []
        rule = add_rule(spark, self._answer)
        columns = self.schema.columns
        args = (to_java_schema(spark, columns), columns[0].name, 1)
        plan = rule.register(spark._jsparkSession, "1", name, *args)
        plan_to_dataframe(spark, plan).createOrReplaceTempView(name)

    def _answer(self, text: str, scan: Any) -> Any:
        self._asked.append(text)
        return scan.nothing()

    def close(self) -> None:
        """Take the rule and the table away."""
        remove_rule(self.spark)
        self.spark.catalog.dropTempView(self.name)

    def tree(self, condition: str) -> list[Any]:
        """Return the condition that is left at the scan."""
        self._asked.clear()
        frame: Any = self.spark.sql(f"SELECT count(*) FROM {self.name} WHERE {condition}")
        frame._jdf.queryExecution().optimizedPlan()
        if not self._asked:
            return NEVER  # Spark knows that no row matches, and reads nothing
        found: list[Any] | None = json.loads(self._asked[0].split("\n", 1)[1])["condition"]
        return ALWAYS if found is None else found

    def read(self, condition: str) -> Condition:
        """Return the condition as it is read under the session's settings."""
        return read_condition(self.tree(condition), self.schema, session_settings(self.spark), {})
