"""User-defined functions in a Spark session: declared there once, and known again as long as nobody replaces them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, Literal

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf as spark_udf

from layoutopt.errors import SettingError
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Expr
from layoutopt.model.predicates.nodes import user_calls
from layoutopt.model.types import type_sql
from layoutopt.model.udf import NO_UDFS, Udf, Udfs, by_name, called_name
from layoutopt.spark.core.sessions import check_settings

_LOCK: Final = threading.Lock()
_DECLARED: Final[dict[str, dict[str, tuple[Udf, Any]]]] = {}
"""By session: each function by name, with what Spark's registry holds for it."""


def declare(spark: SparkSession, *udfs: Udf) -> None:
    """Make functions of yours known to a session: to Spark by name, and to layoutopt, so that queries skip by them.

    Their modules need not be there for Spark's workers: what is sent there is the function itself, but not what it
    imports. Declaring a function again replaces it.

    Args:
        spark: the session.
        udfs: made by :func:`layoutopt.udf`.

    Raises:
        SettingError: Spark has a function of that name itself, which it would call instead; or two have one name.
    """
    for each in by_name(udfs).values():
        if _handle(spark, each.name, "builtin") is not None:
            raise SettingError(
                f"{each.name!r} is a function of Spark's own; call yours otherwise: my_{each.name}=MODULE:NAME"
            )
        _register(spark, each.name, each.checked(), each)
        _register(spark, each.measured_name, each.or_null(), each)
        with _LOCK:
            _DECLARED.setdefault(_session(spark), {})[each.name] = each, _handle(spark, each.name)


def declared(spark: SparkSession) -> Udfs:
    """The functions that were declared in a session, without those whose names mean something else there by now."""
    if not _DECLARED:  # asked for each query: no call of Java where nobody declared anything
        return NO_UDFS
    with _LOCK:
        known = dict(_DECLARED.get(_session(spark), {}))
    return {name: udf for name, (udf, handle) in known.items() if _same(_handle(spark, name), handle)}


def same_code(spark: SparkSession, scan: Any, udfs: Udfs, tree: Any) -> Udfs:
    """Return those of some functions whose code is what an expression calls by their names.

    Args:
        spark: the session, which has them registered.
        scan: the rule's scan.
        udfs: declared functions.
        tree: the scan's condition, as the rule writes it.
    """
    called: dict[str, set[str]] = {}
    for name, code in _calls(tree) if udfs else ():
        called.setdefault(name, set()).add(code)
    if not called:
        return NO_UDFS
    jvm: Any = spark._jvm
    none = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    same: dict[str, Udf] = {}
    for name in udfs.keys() & called.keys():
        handle = _handle(spark, name)
        if handle is not None and {scan.digest(handle.apply(none).func())} == called[name]:
            same[name] = udfs[name]
    return same


def _calls(tree: Any) -> Iterator[tuple[str, str]]:
    kind, _, children, details = tree
    if kind == "PythonUDF":
        yield details.get("name", ""), details.get("func", "")
    for child in children:
        yield from _calls(child)


def is_registered(spark: SparkSession, name: str) -> bool:
    """Whether the session has a function of its own under a name."""
    return _handle(spark, name) is not None


def check_plan(spark: SparkSession, plan: Plan, what: str) -> None:
    """Refuse a session in which a plan's features or indexes would mean something else; raises as the next."""
    check_features(spark, plan.features, what, (spec.subject for spec in plan.indexes))


def check_features(spark: SparkSession, features: FeatureSet, what: str, others: Iterable[Expr] = ()) -> None:
    """Refuse a session in which a document's features would mean something else, or can't be computed.

    Args:
        spark: the session that will evaluate them.
        features: the document's.
        what: the document, for the message: ``the plan``.
        others: expressions that the session is to compute beside them.

    Raises:
        SettingError: a setting differs, or a function that is called was not declared, or has changed since.
    """
    check_settings(spark, features.settings, what)
    known = declared(spark)
    computed = (*(feature.node for feature in features), *others)
    for fn in dict.fromkeys(call.fn for each in computed for call in user_calls(each)):
        name = called_name(fn)
        udf = known.get(name)
        if udf is None:
            raise SettingError(f"{what} needs the function {name}; name it: --udf {name}=MODULE:NAME")
        if udf.measured_name != fn:
            raise SettingError(
                f"the function {name} is not the one that {what} was made with; analyse and plan again, or give it "
                "its old code"
            )


def _register(spark: SparkSession, name: str, function: Callable[..., Any], udf: Udf) -> None:
    with _sent_as_code(udf.function):
        # Without Arrow, whatever the session prefers: the two give other values where a result has another type.
        spark.udf.register(name, spark_udf(function, type_sql(udf.returns), useArrow=False))


@contextmanager
def _sent_as_code(function: Callable[..., Any]) -> Iterator[None]:
    """Within the block the function is sent to workers as code, not as the name of a module that they may lack."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    pickling: Any = cloudpickle
    if module is None or not _is_sent(module) or module.__name__ in pickling.list_registry_pickle_by_value():
        yield
        return
    pickling.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickling.unregister_pickle_by_value(module)


def _is_sent(module: ModuleType) -> bool:
    """Whether workers may lack a module that comes from a file: Python's own they have."""
    own = module.__name__.partition(".")[0] in sys.stdlib_module_names
    return getattr(module, "__file__", None) is not None and not own


def _session(spark: SparkSession) -> str:
    java: Any = spark._jsparkSession
    return str(java.sessionUUID())


def _handle(spark: SparkSession, name: str, whose: Literal["session", "builtin"] = "session") -> Any:
    """What Spark's registry holds under a name now; None where there is no such function."""
    java: Any = spark._jsparkSession
    jvm: Any = spark.sparkContext._jvm
    some = jvm.scala.Option.apply
    found = (
        java.sessionState()
        .functionRegistry()
        .lookupFunctionBuilder(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, some(whose), some("system")))
    )
    return found.get() if found.isDefined() else None


def _same(found: Any, handle: Any) -> bool:
    return found is not None and bool(found.equals(handle))
