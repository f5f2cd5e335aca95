"""Which version of Spark a test needs, where an older one lacks what the test is about."""

from __future__ import annotations

from importlib.metadata import version

import pytest


def has_spark(least: str) -> bool:
    """Whether PySpark is at least of a version: "4.1"."""
    return tuple(map(int, version("pyspark").split(".")[:2])) >= tuple(map(int, least.split(".")))


def needs_spark(least: str, what: str) -> pytest.MarkDecorator:
    """The mark of a test that older versions skip, since they lack something."""
    return pytest.mark.skipif(not has_spark(least), reason=f"Spark before {least} lacks {what}")
