"""Settings of sessions, and of what is checked, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from layoutopt.spark.session import enabling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For texts that are evaluated once, over few rows: compiling them takes longer."""
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""As users have it, which the shared session of short runs has not."""


def new_session(spark: SparkSession, settings: Mapping[str, str] = UNCOMPILED) -> SparkSession:
    """A session of its own with other settings; unless told, without compiled code."""
    session = spark.newSession()
    _set(session, settings)
    return session


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        spark.conf.set(key, value)


@contextmanager
def under(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A block with other settings of the session."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in settings}
    _set(spark, settings)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


@contextmanager
def compared_here() -> Iterator[None]:
    """A block whose tests compare each answer with the source's: Spark need not count rows with and without skipping.

    The decision under each condition is checked all the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enabling, "check_scan", lambda *_: None)
        yield


@contextmanager
def counting_jobs(spark: SparkSession) -> Iterator[set[int]]:
    """The numbers of the jobs of Spark that run within the block, in any thread, by its status tracker."""
    tracker, jobs = spark.sparkContext.statusTracker(), set[int]()
    before = {*tracker.getJobIdsForGroup()}
    try:
        yield jobs
    finally:
        jobs |= {*tracker.getJobIdsForGroup()} - before
