"""Start Spark sessions, a local one with defaults for a laptop, and compare settings that change a predicate's meaning.

Java starts without its log; whatever else it prints on stderr is passed on.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from layoutopt.errors import SettingError, WorkerLostError
from layoutopt.model.feature import SessionSettings
from layoutopt.sql.types import normal_zone

if TYPE_CHECKING:  # PySpark takes a second to import
    from pyspark.sql import SparkSession

# For sessions started here; the settings of spark-submit and of an existing session take precedence.
LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    # Large task results are fetched from this address, which has to be the bound one.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Routing rows is one job whose tasks are the segments, which must not be coalesced.
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# For a session that reads an encrypted table.
PRIVATE: Final = {"spark.io.encryption.enabled": "true"}

# A session, or a function that starts one, the same at each call, for work that may not need it.
AnySession: TypeAlias = "SparkSession | Callable[[], SparkSession]"

_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_CONFIGURATION: Final = "-Dlog4j2.configurationFile="
# Spark requests this module itself, and no option silences Java's warning.
_EXPECTED_WARNING: Final = b"WARNING: Using incubator modules:"
# What Spark says after its master did not answer for a minute.
_STOPPED: Final = "stopped SparkContext"
_HUGE_METHOD_LIMIT = "spark.sql.codegen.hugeMethodLimit"
_JIT_LIMIT = "8000"
_FIRST_VERSION = "spark.sql.sources.useV1SourceList"

# With other values layoutopt's own expressions mean something else, so features are not measured.
_REQUIRED: Final = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.functionResolution.sessionOrder": "second",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.noCharPaddingInPredicate": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.path.enabled": "false",  # SET PATH may put the session's functions before Spark's own
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}

# layoutopt's names of settings, by Spark's.
_NAMES: Final = {
    "spark.sql.session.timeZone": "time_zone",
    "spark.sql.ansi.enabled": "ansi",
    "spark.sql.caseSensitive": "case_sensitive",
}


def start_session(spark: AnySession) -> SparkSession:
    """Return the session, started now if it is not yet running; raises as :func:`java_session`."""
    session = spark() if callable(spark) else spark
    java_session(session)
    return session


def java_session(spark: SparkSession) -> Any:
    """Return the Java object of a classic session.

    Raises:
        SettingError: the session uses Spark Connect.
    """
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        raise SettingError(
            "Spark Connect sessions are not supported, since a server makes their plans and runs their tasks; use a "
            "classic session (spark-submit --master), or none: --executor local, layoutopt.open_table(PATH).scan(...)"
        )
    return java


def spark_session(app: str = "layoutopt", debug: bool = False, private: bool = False, /, **conf: str) -> SparkSession:
    """Return the running session, the one that spark-submit prepared, or a new local one on all cores.

    Args:
        app: the application's name.
        debug: whether a new session logs as Spark and Java do by default; otherwise only exceptions report failures.
        private: whether a new session encrypts what it shuffles and spills to its local disks.
        conf: Spark settings, with ``__`` for a dot: ``spark__driver__memory="8g"``. They override all others.

    Raises:
        WorkerLostError: the master of a new session does not answer.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    settings = {key.replace("__", "."): value for key, value in conf.items()}
    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in settings.items():
            active.conf.set(key, value)
        return active
    settings = (PRIVATE if private else {}) | settings
    builder = SparkSession.builder.appName(app)
    if not is_submitted():
        # Workers are otherwise started by name, and may be another Python without our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master("local[*]")
        settings = LOCAL_DEFAULTS | settings
        if not debug:
            settings = _without_log(settings)
            _start_java(settings)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if _STOPPED not in str(error):
            raise
        master = settings.get("spark.master") or SparkConf().get("spark.master")
        raise WorkerLostError(
            f"Spark's master {master!r} does not answer, or ended the application; check its "
            "address and its log, then run again"
        ) from error
    # PySpark's thread for accumulators would print a traceback when Java ends; the caller reports the failure.
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
    return spark


def silence_failed_queries() -> None:
    """Silence the JSON that PySpark logs for each failed query; for processes that print the error themselves."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 logs none
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _without_log(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's properties with logging off from the first line on, unless they configure it themselves."""
    options = properties.get(_OPTIONS, "")
    if _LOG_CONFIGURATION in options:
        return dict(properties)
    quiet = f"{_LOG_CONFIGURATION}{Path(__file__).with_name('log4j2.properties').as_uri()}"
    return {**properties, _OPTIONS: f"{quiet} {options}".strip()}


def _start_java(properties: Mapping[str, str]) -> None:
    """Start the Java process of this process's session, unless it runs, and pass on what it prints on stderr.

    Java needs some of Spark's properties when it starts (memory, options).
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(properties.items()))
    read_end, write_end = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(read_end,), name="java-stderr", daemon=True)
    thread.start()
    try:
        gateway = launch_gateway(conf, {"stderr": write_end})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(write_end)
        thread.join(1)  # the reason why Java did not start is printed there
        raise
    os.close(write_end)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(read_end: int) -> None:
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            if not line.startswith(_EXPECTED_WARNING):
                os.write(2, line)


def count_running_tasks() -> tuple[int, int] | None:
    """Return how many tasks of the running stages are done, of how many; None where none run, or Spark does not say."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    try:
        tracker = None if context is None else context.statusTracker()
        stages = [] if tracker is None else [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # the session may be stopped meanwhile, in another thread
        return None
    counts = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return (sum(done for done, _ in counts), sum(total for _, total in counts)) if counts else None


def cancel_jobs() -> None:
    """Cancel the jobs of this process's session, if there is one: an interrupted query waits for its job otherwise."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    with suppress(Exception):  # the session may be stopped meanwhile
        if context is not None:
            context.cancelAllJobs()


def start_early(start: Callable[[], SparkSession]) -> Callable[[], SparkSession]:
    """Start a session in the background; return a function that waits for it. The process may end before."""
    session: Future[SparkSession] = Future()

    def run() -> None:
        try:
            session.set_result(start())
        except BaseException as error:
            session.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return session.result


def is_submitted() -> bool:
    """Whether spark-submit, or a shell of Spark's, has prepared a session for this process."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def has_own_installation() -> bool:
    """Whether there is a separate installation of Spark, with properties of its own."""
    return "SPARK_HOME" in os.environ or "SPARK_CONF_DIR" in os.environ


def has_local_paths(spark: SparkSession) -> bool:
    """Whether the session reads a path without a scheme from this machine."""
    java: Any = spark._jsc
    return str(java.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")


def get_own_setting(spark: SparkSession, key: str) -> str | None:
    """Return a setting of the session, or None where Spark's default applies."""
    return str(spark.conf.get(key)) if java_session(spark).sessionState().conf().contains(key) else None


@contextmanager
def override_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change a session's settings within the block; each is restored unless it was changed again meanwhile."""
    before = {key: value for key in settings if (value := get_own_setting(spark, key)) is not None}
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


def limit_method_size(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark generate small methods within the block, as for an expression of many features.

    The JVM interprets methods above 8,000 bytes of bytecode, which 64 features in one exceed: five times slower. With
    this limit Spark falls back to code that it splits by expression.
    """
    return override_settings(spark, {_HUGE_METHOD_LIMIT: _JIT_LIMIT})


def use_v1_parquet_reader(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark read Parquet within the block by the reader that provides files' metadata."""
    if "parquet" in str(spark.conf.get(_FIRST_VERSION)).lower():
        return nullcontext()
    return override_settings(spark, {_FIRST_VERSION: "parquet"})


def session_settings(spark: SparkSession) -> SessionSettings:
    """Return the session's settings that change a predicate's meaning."""
    return SessionSettings(
        time_zone=normal_zone(str(spark.conf.get("spark.sql.session.timeZone"))),
        ansi=str(spark.conf.get("spark.sql.ansi.enabled")) == "true",
        case_sensitive=str(spark.conf.get("spark.sql.caseSensitive")) == "true",
    )


def to_spark_properties(settings: SessionSettings) -> dict[str, str]:
    """Return settings as Spark's properties.

    >>> to_spark_properties(SessionSettings("Asia/Tokyo"))["spark.sql.ansi.enabled"]
    'true'
    """
    values = {key: getattr(settings, name) for key, name in _NAMES.items()}
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


def check_settings(spark: SparkSession, wanted: SessionSettings, what: str) -> None:
    """Check that a document's predicates keep their meaning in a session; ``what`` names the document in messages.

    Raises:
        SettingError: a setting differs; the message names Spark's key and both values.
    """
    session = session_settings(spark)
    for key, value in to_spark_properties(wanted).items():
        has = getattr(session, _NAMES[key])
        if has != getattr(wanted, _NAMES[key]):
            raise SettingError(f"{what} was made under {key}={value} but the session has {has}; set it to {value}")
    for key, required in _REQUIRED.items():
        value = str(spark.conf.get(key, required))
        if value.casefold() != required.casefold():
            raise SettingError(f"{what} can't be followed in a session with {key}={value}; set it to {required}")
