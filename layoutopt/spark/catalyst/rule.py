"""Add the rules of ``ReadBlocks.java`` and ``PruneByKeys.java`` to Spark sessions.

This module uses Spark's private interfaces: Janino, callbacks from Java, and experimental methods.
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
from layoutopt.spark.core.sessions import java_session
from layoutopt.spark.core.versions import adapt_java, java_class

_SOURCES: Final = {
    f"layoutopt.{name}": Path(__file__).with_name(f"{name}.java") for name in ("ReadBlocks", "PruneByKeys")
}
_ADAPTIVE_RULES: Final = "runtimeOptimizerRules"
_LOCK: Final = threading.Lock()

# Expressions may have another meaning under other values of these settings, or under any legacy setting.
_USUAL: Final = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
}

# Gets a scan as text and the Java scan; returns a plan, an error message, or None.
ScanHandler = Callable[[str, Any], Any]


class _JavaFunction:
    class Java:
        implements: Final = ["java.util.function.BiFunction"]

    def __init__(self, handler: ScanHandler) -> None:
        self._handler = handler

    def apply(self, text: str, scan: Any) -> Any:
        return self._handler(text, scan)


def add_rule(spark: SparkSession, handler: ScanHandler) -> Any:
    """Add the rule to a session's optimiser, besides its other rules, and return it.

    Raises:
        SettingError: the session uses Spark Connect, or the rule does not compile on its Spark version.
    """
    session, jvm = java_session(spark), spark._jvm
    assert jvm is not None, "a classic session has a JVM"
    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    classes, function = _compile_rules(jvm, spark.version), _JavaFunction(handler)
    rule = _make(jvm, classes[0], function, to_java_map(spark, _USUAL))
    by_keys = _make(jvm, classes[1], function)
    with _LOCK:
        _set_rules(jvm, session, rule)
        _set_adaptive_rules(jvm, session, by_keys)
    return rule


def _make(jvm: Any, java_class: Any, *values: Any) -> Any:
    return java_class.getConstructors()[0].newInstance(_to_list(jvm, values).toArray())


def has_rule(spark: SparkSession) -> bool:
    """Return whether the session's optimiser has the rule."""
    return any(map(_is_layoutopt_rule, _list_items(java_session(spark).experimental().extraOptimizations())))


def remove_rule(spark: SparkSession) -> None:
    """Remove the rules from a session; other rules stay."""
    session = java_session(spark)
    with _LOCK:
        _set_rules(spark._jvm, session)
        _set_adaptive_rules(spark._jvm, session)


def _is_layoutopt_rule(rule: Any) -> bool:
    return rule.getClass().getName() in _SOURCES


def _list_items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _set_rules(jvm: Any, session: Any, *own: Any) -> None:
    """Set the rules of a session's optimiser: those of others, and ours."""
    experimental = session.experimental()
    getattr(experimental, "extraOptimizations_$eq")(_to_rules(jvm, experimental.extraOptimizations(), own))


def _set_adaptive_rules(jvm: Any, session: Any, *own: Any) -> None:
    """Set the rules by which Spark optimises a query again while it runs; only extensions may add some officially."""
    holder = session.sessionState().adaptiveRulesHolder()
    field = holder.getClass().getDeclaredField(_ADAPTIVE_RULES)
    field.setAccessible(True)
    field.set(holder, _to_rules(jvm, holder.runtimeOptimizerRules(), own))


def _to_rules(jvm: Any, rules: Any, own: Sequence[Any]) -> Any:
    others = [rule for rule in _list_items(rules) if not _is_layoutopt_rule(rule)]
    return jvm.PythonUtils.toSeq(_to_list(jvm, [*others, *own]))


def _to_list(jvm: Any, items: Sequence[Any]) -> Any:
    result = jvm.java.util.ArrayList()
    for item in items:
        result.add(item)
    return result


_CLASSES: Final[dict[int, list[Any]]] = {}


def _compile_rules(jvm: Any, version: str) -> list[Any]:
    """Return the classes of :data:`_SOURCES`, compiled once in each Java process."""
    with _LOCK:
        compiled = _CLASSES.get(id(jvm._gateway_client))
        if compiled is not None:
            return compiled
        loader, classes = jvm.java.lang.Thread.currentThread().getContextClassLoader(), []
        for name, source in _SOURCES.items():
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            try:
                compiler.cook(adapt_java(source.read_text(encoding="utf-8")))
            except Py4JJavaError as error:
                message = error.java_exception.getMessage()
                raise SettingError(
                    f"layoutopt's optimiser rule does not compile on Spark {version} ({message}); use Spark 3.5 to "
                    "4.3, or read the table by layoutopt.open_table(PATH).scan(...)"
                ) from error
            loader = compiler.getClassLoader()
            classes.append(loader.loadClass(name))
        _CLASSES.clear()  # drops the classes of an ended Java process
        _CLASSES[id(jvm._gateway_client)] = classes
        return classes


def to_java_schema(spark: SparkSession, columns: Sequence[Column]) -> Any:
    """Return columns as Spark's schema."""
    jvm: Any = spark._jvm
    return getattr(jvm, "org.apache.spark.sql.types.StructType").fromDDL(schema_ddl(columns))


def get_analyzed_plan(frame: DataFrame) -> Any:
    """Return a DataFrame's analysed plan."""
    java: Any = frame._jdf
    return java.queryExecution().analyzed()


def get_optimized_plan(frame: DataFrame) -> Any:
    """Return a DataFrame's optimised plan, which may be part of another optimised plan."""
    java: Any = frame._jdf
    return java.queryExecution().optimizedPlan()


def plan_to_dataframe(spark: SparkSession, plan: Any) -> DataFrame:
    """Return a plan as a DataFrame."""
    dataset = java_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(java_session(spark), plan)
    return DataFrame(dataset, spark)


def to_java_map(spark: SparkSession, items: Mapping[str, str]) -> Any:
    """Return a mapping as a Java map."""
    jvm: Any = spark._jvm
    result = jvm.java.util.HashMap()
    for key, value in items.items():
        result.put(key, value)
    return result
