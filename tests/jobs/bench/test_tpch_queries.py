from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from jobs.bench.tpch_queries import (
    COUNTRY_CODES,
    NATIONS,
    REGION_OF_NATION,
    REGIONS,
    SHIP_MODES,
    STREAMS,
    TEMPLATES,
    Draw,
    chosen_streams,
    draw_stream,
)
from layoutopt.errors import SettingError

# Sun 2017, 5.7.1: the columns that queries of each template access.
THESIS_CHAPTER_5 = [11, 7, 7, 4, 5, 6, 4, 5, 4, 3, 8, 3, 5, 2]
THESIS_CHAPTER_4 = [7, 7, 4, 4, 5, 4, 8, 3, 5, 2]  # 4.7.2


def columns_read(sql: str) -> set[str]:
    """The column names in a query: what looks like a column (`l_quantity`) outside of string literals."""
    return set(re.findall(r"\b(?:[lopsc]|ps|[cs][nr])_[a-z]+\b", re.sub(r"'[^']*'", "", sql)))


def drawn(template: str, pattern: str, times: int = 3000) -> set[str]:
    """Everything that `pattern`'s group matched in many queries of a template."""
    draw = Draw(random.Random(5))
    return {match for _ in range(times) for match in re.findall(pattern, TEMPLATES[template].sql(draw))}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_reads_as_many_columns_as_it_says(name: str) -> None:
    assert len(columns_read(TEMPLATES[name].sql(Draw(random.Random(1))))) == TEMPLATES[name].columns


def test_the_column_counts_are_those_of_the_thesis() -> None:
    assert [TEMPLATES[name].columns for name in STREAMS["chapter4"].templates] == THESIS_CHAPTER_4
    assert [TEMPLATES[name].columns for name in STREAMS["chapter5"].templates] == THESIS_CHAPTER_5


@pytest.mark.parametrize(
    ("template", "pattern", "expected"),
    [
        ("q2", r"p_size = (\d+)", {str(size) for size in range(1, 51)}),
        ("q2", r"sr_name = '([^']*)'", set(REGIONS)),
        ("q3", r"l_shipdate > DATE '([^']*)'", {f"1995-03-{day:02d}" for day in range(1, 32)}),
        ("q5", r">= DATE '(\d+)-01-01'", {str(year) for year in range(1993, 1998)}),
        ("q6", r"BETWEEN (0\.\d+) -", {f"0.0{percent}" for percent in range(2, 10)}),
        ("q6", r"l_quantity < (\d+)", {"24", "25"}),
        ("q7", r"cn_name = '([^']*)'", set(NATIONS)),
        ("q8", r"cr_name = '([^']*)'", set(REGIONS)),
        ("q11", r"sn_name = '([^']*)'", set(NATIONS)),
        (
            "q14",
            r">= DATE '([^']*)'",
            {f"{year}-{month:02d}-01" for year in range(1993, 1998) for month in range(1, 13)},
        ),
        ("q17", r"p_brand = '([^']*)'", {f"Brand#{m}{n}" for m in range(1, 6) for n in range(1, 6)}),
        ("q19", r"l_quantity <= (\d+) \+ 10", {str(quantity) for quantity in range(1, 31)}),
    ],
)
def test_parameters_cover_the_specifications_domain_and_no_more(
    template: str, pattern: str, expected: set[str]
) -> None:
    assert drawn(template, pattern) == expected


def test_q10_dates_run_from_february_1993_to_january_1995() -> None:
    dates = sorted(drawn("q10", r">= DATE '([^']*)'"))
    assert (dates[0], dates[-1], len(dates)) == ("1993-02-01", "1995-01-01", 24)


def test_types_and_containers_have_150_and_40_values() -> None:
    assert len(drawn("q8", r"p_type = '([^']*)'")) == 150
    assert len(drawn("q17", r"p_container = '([^']*)'")) == 40


@pytest.mark.parametrize(
    ("template", "pattern", "count", "domain"),
    [
        ("q12", r"l_shipmode IN \(([^)]*)\)", 2, {f"'{mode}'" for mode in SHIP_MODES}),
        ("q16", r"p_size IN \(([^)]*)\)", 8, {str(size) for size in range(1, 51)}),
        ("q22", r"IN \(([^)]*)\)", 7, {f"'{code}'" for code in COUNTRY_CODES}),
    ],
)
def test_lists_hold_different_values(template: str, pattern: str, count: int, domain: set[str]) -> None:
    for text in drawn(template, pattern, 200):
        values = text.split(", ")
        assert len(values) == len(set(values)) == count
        assert set(values) <= domain


def test_q7_names_two_different_nations() -> None:
    for names in drawn("q7", r"(sn_name = '[^']*' AND cn_name = '[^']*')"):
        assert len(set(re.findall(r"'([^']*)'", names))) == 2


def test_every_region_has_five_nations() -> None:
    assert Counter(REGION_OF_NATION.values()) == dict.fromkeys(REGIONS, 5)


def test_the_same_seed_draws_the_same_and_roles_and_seeds_differ() -> None:
    stream = STREAMS["chapter3"]
    train = draw_stream(stream, "train", 5, seed=1)
    assert train == draw_stream(stream, "train", 5, seed=1)
    assert train != draw_stream(stream, "test", 5, seed=1)
    assert train != draw_stream(stream, "train", 5, seed=2)


def test_a_template_draws_the_same_in_every_chapter() -> None:
    in_chapter = [
        [query for query in draw_stream(STREAMS[name], "train", 5, seed=1) if query.template == "q19"]
        for name in ("chapter3", "chapter4", "chapter5")
    ]
    assert in_chapter[0] == in_chapter[1] == in_chapter[2]


def test_skew_makes_the_first_of_five_regions_84_percent_and_leaves_dates_uniform() -> None:
    draw = Draw(random.Random(3), skew=3.0)
    queries = [TEMPLATES["q5"].sql(draw) for _ in range(4000)]
    regions = Counter(re.findall(r"sr_name = '([^']*)'", " ".join(queries)))
    years = Counter(re.findall(r">= DATE '(\d+)", " ".join(queries)))
    assert regions["AFRICA"] / 4000 == pytest.approx(0.843, abs=0.02)  # 3.7.2
    assert min(years.values()) > 700  # of 800 expected


def test_streams_are_chosen_by_name_and_all_where_none_is() -> None:
    assert chosen_streams(()) == tuple(STREAMS)
    assert chosen_streams(["chapter5", "chapter3"]) == ("chapter5", "chapter3")
    with pytest.raises(SettingError, match="'chapter6', which is not a stream: did you mean 'chapter"):
        chosen_streams(["chapter3", "chapter6"])
