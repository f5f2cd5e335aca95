"""Documents that older code wrote (``tests/fixtures/older``) are read as ever, and written as the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan

OLDER = Path(__file__).parents[1] / "fixtures" / "older"


def named(*patterns: str) -> list[str]:
    return sorted(str(path.relative_to(OLDER)) for pattern in patterns for path in OLDER.glob(pattern))


@pytest.mark.parametrize("name", named("features.json", "*/features.json"))
def test_a_features_document_is_the_same_bytes_again(name: str) -> None:
    data = (OLDER / name).read_bytes()
    assert FeaturesDocument.loads(data).dumps() == data


@pytest.mark.parametrize("name", named("plan.json", "*/table/_layoutopt/plans/*.json"))
def test_a_plan_is_the_same_bytes_again(name: str) -> None:
    data = (OLDER / name).read_bytes()
    plan = Plan.loads(data)
    assert plan.dumps() == data
    assert plan.digest == ("00948c0e8ec597d9" if name == "plan.json" else Path(name).stem)


@pytest.mark.parametrize("name", named("*/table/_layoutopt/snapshots/*.json"))
def test_a_snapshot_is_the_same_bytes_again(name: str) -> None:
    data = (OLDER / name).read_bytes()
    assert snapshot_json.dumps(snapshot_json.loads(data, name)) == data


def test_there_are_such_documents() -> None:
    assert "features.json" in named("features.json", "*/features.json")
    assert len(named("plan.json", "*/table/_layoutopt/plans/*.json")) > 1
    assert named("*/table/_layoutopt/snapshots/*.json")
