"""Tables that the tests of changes begin with."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.changes.living import Begin, begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Begin:
    """Makes a table of sixty rows in three partitions, of a scheme's name: see :func:`begun`."""
    return partial(begun, spark, tmp_path)
