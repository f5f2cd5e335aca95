"""Starting Java for a session of ours: without its chatter, but with every word that is not known to be that."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

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
