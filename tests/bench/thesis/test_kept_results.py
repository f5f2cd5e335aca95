"""The results that are kept with the code: README's tables are theirs, they are small, and name no machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from layoutopt.bench.thesis.readme import with_tables
from layoutopt.bench.thesis.registry import FIGURES
from layoutopt.bench.thesis.results import read_results

ROOT = Path(__file__).parent.parent.parent.parent
KEPT = ROOT / "docs" / "results"
README = ROOT / "README.md"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return read_results(KEPT / "results.json")


def test_the_tables_of_the_readme_are_those_of_the_results(kept: dict[str, Any]) -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("<!-- results: ") >= 3
    assert with_tables(text, kept) == text, "run `make readme`, or correct docs/results/results.json"


def test_a_changed_number_would_be_seen(kept: dict[str, Any]) -> None:
    text = README.read_text(encoding="utf-8")
    for figure in kept["figures"].values():
        for claim in figure.get("claims", ()):
            if claim["ours"] is not None:
                claim["ours"] *= 1.5
    assert with_tables(text, kept) != text


@pytest.mark.parametrize("name", ["results.json", "index.html"])
def test_results_are_small_and_name_no_machine(name: str) -> None:
    text = (KEPT / name).read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"/(work|home|root|tmp|Users)/", text)


def test_every_figure_is_there_or_said_not_to_be(kept: dict[str, Any]) -> None:
    assert list(kept["figures"]) == list(FIGURES)
    page = (KEPT / "index.html").read_text(encoding="utf-8")
    for name, figure in kept["figures"].items():
        assert f'<h3 id="{name}">' in page or figure["state"] != "measured"
    assert page.index("Where we fall behind") < page.index("At a glance")
