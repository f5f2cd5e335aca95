"""Spark sessions: a local one fit for a laptop, and which of a session's settings change a feature's meaning."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from layoutopt.errors import SettingError
from layoutopt.model.feature import Settings
from layoutopt.sql.types import normal_zone

# ----------------------------------------------------------------------------------------------------
# Starting Java for a session of ours: without its chatter, but with every word that is not known to be that.

_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_CONFIGURATION: Final = "-Dlog4j2.configurationFile="
# Spark asks for this module itself, and no option keeps Java from saying so.
_CHATTER: Final = b"WARNING: Using incubator modules:"


def without_log(properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's properties with logging switched off from the first line on, unless they configure it themselves."""
    given = properties.get(_OPTIONS, "")
    if _LOG_CONFIGURATION in given:
        return dict(properties)
    quiet = f"{_LOG_CONFIGURATION}{Path(__file__).with_name('log4j2.properties').as_uri()}"
    return {**properties, _OPTIONS: f"{quiet} {given}".strip()}


def start_java(properties: Mapping[str, str]) -> None:
    """Start the Java process of this process's Spark session, if it has none yet; what it says on stderr is passed on.

    Args:
        properties: Spark's, of which Java needs some when it starts (memory, options).
    """
    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(properties.items()))
    reading, writing = os.pipe()
    passing = threading.Thread(target=_pass_on, args=(reading,), name="java-stderr", daemon=True)
    passing.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writing)
        passing.join(1)  # why Java did not start stands there
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_CHATTER):
                os.write(2, line)


# Only what a session started here gets; spark-submit's and an existing session's settings win over them.
LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    # What is bound there must be asked for there: large task results are fetched from this address.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Routing rows is one job whose tasks are the segments: nobody should coalesce them.
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

PRIVATE: Final = {"spark.io.encryption.enabled": "true"}
"""What a session gets whose rows are those of an encrypted table."""

_HUGE_METHOD_LIMIT = "spark.sql.codegen.hugeMethodLimit"
_JIT_LIMIT = "8000"


@contextmanager
def settings_within(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session other settings within the block; each is put back, unless somebody has changed it meanwhile."""
    java: Any = spark._jsparkSession
    before = {key: str(spark.conf.get(key)) for key in settings if java.sessionState().conf().contains(key)}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in settings.items():
            if spark.conf.get(key) != value:
                continue
            if key in before:
                spark.conf.set(key, before[key])
            else:
                spark.conf.unset(key)


def compiled_in_parts(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark generate small methods within the block, as for an expression of many features.

    The JVM interprets methods above 8,000 bytes of bytecode, which 64 features in one exceed: five times slower. With
    this limit Spark falls back to code that it splits by expression.
    """
    return settings_within(spark, {_HUGE_METHOD_LIMIT: _JIT_LIMIT})


_FIRST_VERSION = "spark.sql.sources.useV1SourceList"


def own_parquet_reader(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark read Parquet by the reader that knows files' metadata, whatever the session prefers elsewhere."""
    if "parquet" in str(spark.conf.get(_FIRST_VERSION)).lower():
        return nullcontext()
    return settings_within(spark, {_FIRST_VERSION: "parquet"})


AnySession: TypeAlias = "SparkSession | Callable[[], SparkSession]"
"""A session, or what starts one, the same each time it is asked, for work that may do without."""


def started(spark: AnySession) -> SparkSession:
    """The session, which is started now where it is not there yet."""
    return spark() if callable(spark) else spark


def spark_session(app: str = "layoutopt", debug: bool = False, private: bool = False, /, **conf: str) -> SparkSession:
    """The running session, the one that spark-submit prepared, or a new local one on all cores.

    Args:
        app: the application's name.
        debug: whether a new session says all that Spark and Java have to say; else what fails is an exception alone.
        private: whether a new session encrypts what it shuffles and spills to its local disks.
        conf: Spark settings, with ``__`` for a dot: ``spark__driver__memory="8g"``. They win over all others.
    """
    given = {key.replace("__", "."): value for key, value in conf.items()}
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in given.items():
            active.conf.set(key, value)
        return active
    given = (PRIVATE if private else {}) | given
    builder = SparkSession.builder.appName(app)
    if not is_submitted():
        # Workers are started by name otherwise, and may be another Python without our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master("local[*]")
        given = LOCAL_DEFAULTS | given
        if not debug:
            given = without_log(given)
            start_java(given)
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _end_quietly(spark)
    return spark


def is_submitted() -> bool:
    """Whether spark-submit, or a shell of Spark's, has prepared a session for this process."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def is_installed_apart() -> bool:
    """Whether there is an installation of Spark's own, with properties of its own."""
    return "SPARK_HOME" in os.environ or "SPARK_CONF_DIR" in os.environ


def has_local_paths(spark: SparkSession) -> bool:
    """Whether a path without a scheme is one of this machine to the session."""
    java: Any = spark._jsc
    return str(java.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")


def _end_quietly(spark: SparkSession) -> None:
    """Keep PySpark's thread for accumulators from printing a traceback where Java ends: the caller says what failed."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def session_settings(spark: SparkSession) -> Settings:
    """The session's settings that change what a predicate means."""
    zone = _conf(spark, "spark.sql.session.timeZone")
    return Settings(
        time_zone=normal_zone(zone),
        ansi=_conf(spark, "spark.sql.ansi.enabled") == "true",
        case_sensitive=_conf(spark, "spark.sql.caseSensitive") == "true",
    )


# Where one of these differs, our own expressions mean something else: features are not measured there.
_EVALUATED: Final = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.functionResolution.sessionOrder": "second",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.noCharPaddingInPredicate": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.path.enabled": "false",  # SET PATH may put functions of the session's before Spark's own
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}

_NAMES: Final = {
    "spark.sql.session.timeZone": "time_zone",
    "spark.sql.ansi.enabled": "ansi",
    "spark.sql.caseSensitive": "case_sensitive",
}
"""Our names of settings, by Spark's."""


def properties_of(settings: Settings) -> dict[str, str]:
    """Settings as properties of Spark's.

    >>> properties_of(Settings("Asia/Tokyo"))["spark.sql.ansi.enabled"]
    'true'
    """
    values = {key: getattr(settings, name) for key, name in _NAMES.items()}
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


def check_settings(spark: SparkSession, wanted: Settings, what: str) -> None:
    """Refuse a session under which a document's predicates would mean something else.

    Args:
        spark: the session that will evaluate them.
        wanted: the document's settings.
        what: the document, for the message: ``the plan``.

    Raises:
        SettingError: a setting differs; the message names Spark's key and both values.
    """
    found = session_settings(spark)
    for key, value in properties_of(wanted).items():
        has = getattr(found, _NAMES[key])
        if has != getattr(wanted, _NAMES[key]):
            raise SettingError(f"{what} was made under {key}={value} but the session has {has}; set it to {value}")
    for key, usual in _EVALUATED.items():
        given = str(spark.conf.get(key, usual))
        if given.casefold() != usual.casefold():
            raise SettingError(f"{what} can't be followed in a session with {key}={given}; set it to {usual}")


def _conf(spark: SparkSession, key: str) -> str:
    return str(spark.conf.get(key))
