"""What a session's settings are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from layoutopt.errors import SettingError
from layoutopt.model.feature import SessionSettings
from layoutopt.spark.core.sessions import check_settings, session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose time zone may be changed."""
    before = str(spark.conf.get(ZONE))
    yield spark
    spark.conf.set(ZONE, before)


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "GMT", "Z", "Zulu"])
def test_names_of_utc_are_one(elsewhere: SparkSession, name: str) -> None:
    elsewhere.conf.set(ZONE, name)
    assert session_settings(elsewhere).time_zone == "UTC"
    check_settings(elsewhere, SessionSettings(), "the plan")


@pytest.mark.parametrize("name", ["Europe/London", "Etc/GMT+1", "+01:00"])
def test_other_zones_are_others(elsewhere: SparkSession, name: str) -> None:
    elsewhere.conf.set(ZONE, name)
    with pytest.raises(SettingError, match="timeZone=UTC"):
        check_settings(elsewhere, SessionSettings(), "the plan")
