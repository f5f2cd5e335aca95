"""What tests of Spark share beside its session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.settings import COMPILED, UNCOMPILED, under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """The shared session evaluates each text of a file's tests once: compiling it would take longer."""
    with under(spark, UNCOMPILED):
        yield


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let the shared session compile, as users' sessions do."""
    with under(spark, COMPILED):
        yield
