"""A process without a Spark of its own, as users have it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
