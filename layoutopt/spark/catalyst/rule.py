"""Add the optimiser rule of ``ReadBlocks.java`` to Spark sessions.

Everything that the rule needs of Spark's private interfaces is here: Janino, callbacks from Java, experimental methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from layoutopt.errors import SettingError
from layoutopt.model.schema import Column, schema_ddl

_SOURCE: Final = Path(__file__).with_name("ReadBlocks.java")
_CLASS: Final = "layoutopt.ReadBlocks"
_LOCK: Final = threading.Lock()

# Under other values of these, or any setting of older versions, expressions may give something else than is known here.
_USUAL: Final = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
}

Ask = Callable[[str, Any], Any]
"""Answers the rule: gets a scan as text and the Java scan, returns a plan, a sentence that is an error, or None."""


class _Asked:
    """The Python side of the rule, as Java calls it."""

    class Java:
        implements: Final = ["java.util.function.BiFunction"]

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def apply(self, text: str, scan: Any) -> Any:
        return self._ask(text, scan)


def java_session(spark: SparkSession) -> Any:
    """Return the Java object of a classic session.

    Raises:
        SettingError: the session is one of Spark Connect.
    """
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        raise SettingError(
            "this is a session of Spark Connect, whose plans are made on a server; use a classic session, or read the "
            "table by layoutopt.open_table(PATH).scan(...)"
        )
    return java


def add_rule(spark: SparkSession, ask: Ask) -> Any:
    """Add the rule to a session's optimiser beside the rules that are there; return the rule.

    Raises:
        SettingError: the session has no Java process of its own, or its Spark differs too much from those known.
    """
    session, jvm = java_session(spark), spark._jvm
    assert jvm is not None, "a classic session has a JVM"
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    arguments = jvm.java.util.ArrayList()
    arguments.add(_Asked(ask))
    arguments.add(java_map(spark, _USUAL))
    rule = _rule_class(jvm, spark.version).getConstructors()[0].newInstance(arguments.toArray())
    with _LOCK:
        experimental = session.experimental()
        rules = [each for each in _rules(experimental) if not is_ours(each)]
        _set_rules(jvm, experimental, [*rules, rule])
    return rule


def has_rule(spark: SparkSession) -> bool:
    """Whether the session's optimiser has the rule."""
    return any(map(is_ours, _rules(java_session(spark).experimental())))


def remove_rule(spark: SparkSession) -> None:
    """Take the rule away from a session; the rules of others stay."""
    experimental = java_session(spark).experimental()
    with _LOCK:
        _set_rules(spark._jvm, experimental, [each for each in _rules(experimental) if not is_ours(each)])


def is_ours(rule: Any) -> bool:
    """Whether a rule of an optimiser is the one of this module."""
    return bool(rule.getClass().getName() == _CLASS)


def _rules(experimental: Any) -> list[Any]:
    rules = experimental.extraOptimizations()
    return [rules.apply(place) for place in range(rules.size())]


def _set_rules(jvm: Any, experimental: Any, rules: Sequence[Any]) -> None:
    listed = jvm.java.util.ArrayList()
    for rule in rules:
        listed.add(rule)
    getattr(experimental, "extraOptimizations_$eq")(jvm.PythonUtils.toSeq(listed))


_CLASSES: Final[dict[int, Any]] = {}


def _rule_class(jvm: Any, version: str) -> Any:
    """Compile the rule, once in each Java process."""
    with _LOCK:
        known = _CLASSES.get(id(jvm._gateway_client))
        if known is not None:
            return known
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        try:
            compiler.cook(_SOURCE.read_text(encoding="utf-8"))
        except Py4JJavaError as error:
            said = error.java_exception.getMessage()
            raise SettingError(
                f"layoutopt's optimiser rule does not compile on Spark {version} ({said}); use Spark 4.3, or read the "
                "table by layoutopt.open_table(PATH).scan(...)"
            ) from error
        _CLASSES.clear()  # of a Java process that has ended
        _CLASSES[id(jvm._gateway_client)] = compiler.getClassLoader().loadClass(_CLASS)
        return _CLASSES[id(jvm._gateway_client)]


def java_schema(spark: SparkSession, columns: Sequence[Column]) -> Any:
    """Return columns as Spark's schema."""
    jvm: Any = spark._jvm
    return getattr(jvm, "org.apache.spark.sql.types.StructType").fromDDL(schema_ddl(columns))


def analyzed(frame: DataFrame) -> Any:
    """Return a DataFrame's analysed plan."""
    java: Any = frame._jdf
    return java.queryExecution().analyzed()


def optimized(frame: DataFrame) -> Any:
    """Return a DataFrame's optimised plan, which may stand in another optimised plan."""
    java: Any = frame._jdf
    return java.queryExecution().optimizedPlan()


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return a DataFrame of a plan."""
    jvm: Any = spark._jvm
    dataset = getattr(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(java_session(spark), plan)
    return DataFrame(dataset, spark)


def java_map(spark: SparkSession, items: Mapping[str, str]) -> Any:
    """Return a mapping as Java's."""
    jvm: Any = spark._jvm
    made = jvm.java.util.HashMap()
    for key, value in items.items():
        made.put(key, value)
    return made
