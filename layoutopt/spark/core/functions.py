"""Declare user-defined functions in a Spark session, and find them again while they are not replaced."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf as spark_udf

from layoutopt.errors import SettingError
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Expr
from layoutopt.model.predicates.nodes import all_calls, user_calls
from layoutopt.model.types import type_sql
from layoutopt.model.udf import NO_UDFS, Udf, Udfs, by_name, called_name
from layoutopt.spark.core.sessions import check_settings, java_session
from layoutopt.spark.core.versions import function_identifier, has_function_scopes, is_spark_3, java_class

_LOCK: Final = threading.Lock()
# By session: each function by name, with Spark's registration of it.
_DECLARED: Final[dict[str, dict[str, tuple[Udf, Any]]]] = {}


def declare(spark: SparkSession, *udfs: Udf) -> None:
    """Declare functions, of :func:`layoutopt.udf`, to Spark by name, and to layoutopt, so that queries skip by them.

    Spark's workers need not have the functions' modules: a function's code is sent to them, but not what it imports.
    Declaring a function again replaces it.

    Raises:
        SettingError: Spark has a function of that name, which it would call instead; or two have one name.
    """
    for udf in by_name(udfs).values():
        if _find_registration(spark, udf.name, "builtin") is not None:
            raise SettingError(f"{udf.name!r} is a function of Spark's own; rename yours: my_{udf.name}=MODULE:NAME")
        _register(spark, udf.name, udf.checked(), udf)
        _register(spark, udf.measured_name, udf.or_null(), udf)
        with _LOCK:
            _DECLARED.setdefault(_session_id(spark), {})[udf.name] = udf, _find_registration(spark, udf.name)


def find_declared_udfs(spark: SparkSession) -> Udfs:
    """Return the functions declared in a session whose names have not been registered again since."""
    if not _DECLARED:  # called for each query: no call of Java where nothing was declared
        return NO_UDFS
    with _LOCK:
        known = dict(_DECLARED.get(_session_id(spark), {}))
    current = {}
    for name, (udf, registration) in known.items():
        spark_registration = _find_registration(spark, name)
        if spark_registration is not None and bool(spark_registration.equals(registration)):
            current[name] = udf
    return current


def select_same_code(spark: SparkSession, scan: Any, udfs: Udfs, tree: Any) -> Udfs:
    """Return the functions whose code is what an expression calls by their names.

    ``scan`` is the rule's, ``tree`` its condition as the rule writes it.
    """
    codes: dict[str, set[str]] = {}
    for name, code in _iterate_calls(tree) if udfs else ():
        codes.setdefault(name, set()).add(code)
    if not codes:
        return NO_UDFS
    jvm: Any = spark._jvm
    no_arguments = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    same: dict[str, Udf] = {}
    for name in udfs.keys() & codes.keys():
        registration = _find_registration(spark, name)
        if registration is not None and {scan.digest(registration.apply(no_arguments).func())} == codes[name]:
            same[name] = udfs[name]
    return same


def _iterate_calls(tree: Any) -> Iterator[tuple[str, str]]:
    kind, _, children, details = tree
    if kind == "PythonUDF":
        yield details.get("name", ""), details.get("func", "")
    for child in children:
        yield from _iterate_calls(child)


def is_registered(spark: SparkSession, name: str) -> bool:
    """Whether the session has a function of its own under a name."""
    return _find_registration(spark, name) is not None


def check_plan(spark: SparkSession, plan: Plan, what: str) -> None:
    """Check a plan's features and indexes as :func:`check_features` does."""
    check_features(spark, plan.features, what, (spec.subject for spec in plan.indexes))


def check_features(spark: SparkSession, features: FeatureSet, what: str, expressions: Iterable[Expr] = ()) -> None:
    """Check that a document's features keep their meaning in a session, and can be computed, as ``expressions`` can.

    ``what`` names the document in messages: ``the plan``.

    Raises:
        SettingError: a setting differs, or a function that is called was not declared, or has changed since.
    """
    check_settings(spark, features.settings, what)
    known = find_declared_udfs(spark)
    computed = (*(feature.node for feature in features), *expressions)
    called = [call for node in computed for call in all_calls(node)]
    if called and is_spark_3():
        raise SettingError(
            f"{what} needs the function {called[0].fn}, and functions of Spark 3.5 may differ from those of Spark 4; "
            "give --executor local, use Spark 4, or features without functions"
        )
    for fn in dict.fromkeys(call.fn for node in computed for call in user_calls(node)):
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
        # Without Arrow, whatever the session prefers: they differ where a result has another type than declared.
        spark.udf.register(name, spark_udf(function, type_sql(udf.returns), useArrow=False))


@contextmanager
def _sent_as_code(function: Callable[..., Any]) -> Iterator[None]:
    """Send the function to workers as code within the block, not as the name of a module that they may lack."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    pickling: Any = cloudpickle
    # Workers may lack a module that comes from a file, except Python's own.
    is_known = (
        module is None
        or getattr(module, "__file__", None) is None
        or module.__name__.partition(".")[0] in sys.stdlib_module_names
    )
    if module is None or is_known or module.__name__ in pickling.list_registry_pickle_by_value():
        yield
        return
    pickling.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickling.unregister_pickle_by_value(module)


def _session_id(spark: SparkSession) -> str:
    return str(java_session(spark).sessionUUID())


def _find_registration(spark: SparkSession, name: str, scope: Literal["session", "builtin"] = "session") -> Any:
    """Return Spark's current registration of a function; None where there is none."""
    registry = java_session(spark).sessionState().functionRegistry()
    function = registry.lookupFunctionBuilder(function_identifier(spark, name, scope))
    if not function.isDefined():
        return None
    if not has_function_scopes():  # the session's registry begins as a copy of Spark's own
        own = java_class(spark, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").builtin()
        built_in = own.lookupFunctionBuilder(function_identifier(spark, name, scope))
        is_built_in = built_in.isDefined() and bool(built_in.get().equals(function.get()))
        if (scope == "session" and is_built_in) or (scope == "builtin" and not built_in.isDefined()):
            return None
    return function.get()
