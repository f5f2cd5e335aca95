"""The results that are kept with the code: tables of the pages are theirs, they are small, and name no machine."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from jobs.bench.figure import read_figures
from jobs.bench.results_report import read_results, with_tables

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "docs" / "results"
# The pages with generated tables, and how many each has at least.
PAGES = {"README.md": 1, "docs/benchmarks.md": 5}


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return read_results(KEPT / "results.json")


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_results(kept: dict[str, Any], page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("<!-- results: ") >= PAGES[page]
    assert with_tables(text, kept) == text, "run `make readme`, or correct docs/results/results.json"


def test_a_changed_number_would_be_seen(kept: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for figure in kept["figures"].values():
        for claim in figure.get("claims", ()):
            if claim["ours"] is not None:
                claim["ours"] *= 1.5
    assert with_tables(text, kept) != text


def test_results_are_small_and_name_no_machine() -> None:
    files = [path for path in KEPT.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"results.json", "index.html"}
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        assert not re.search(r"/(work|home|root|tmp|Users)/", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("folder", sorted(path.parent for path in KEPT.rglob("results.json")), ids=lambda of: of.name)
def test_a_page_tells_what_its_results_say(folder: Path) -> None:
    document, page = read_results(folder / "results.json"), (folder / "index.html").read_text(encoding="utf-8")
    assert f"<h1>{escape(document['title'])}</h1>" in page
    assert escape(document["about"]) in page
    assert {name for name, of in document["figures"].items() if of["state"] == "measured"} == {
        name for name in document["figures"] if f'<h3 id="{name}">' in page
    }


def test_every_figure_is_there_or_said_not_to_be(kept: dict[str, Any]) -> None:
    assert list(kept["figures"]) == list(read_figures("tpch"))
    page = (KEPT / "index.html").read_text(encoding="utf-8")
    for name, figure in kept["figures"].items():
        assert f'<h3 id="{name}">' in page or figure["state"] != "measured"
    assert page.index("Where we fall behind") < page.index("At a glance")
