"""Queries that no log foresaw: their constants are others than the log's, and the table adds them up."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from layoutopt.bench.tpch.index_budget import FamilyFigure, print_unforeseen
from layoutopt.bench.tpch.unforeseen import FAMILIES, TEST_QUERIES, TRAINING_QUERIES, draw_unforeseen


def brands(role: str) -> set[str]:
    drawn = draw_unforeseen(role, 0.1, 0)
    return {query.sql.split("'")[1] for query in drawn if query.template == "brand never asked for"}


def test_each_family_has_its_queries_with_constants_of_its_own() -> None:
    train, test = draw_unforeseen("train", 0.1, 0), draw_unforeseen("test", 0.1, 0)
    assert len(train) == TRAINING_QUERIES * len(FAMILIES)
    assert len(test) == TEST_QUERIES * len(FAMILIES)
    assert test == draw_unforeseen("test", 0.1, 0)
    assert not brands("train") & brands("test")
    look_ups = {query.sql for query in train if query.template in ("order", "part", "customer")}
    assert not look_ups & {query.sql for query in test}


def test_the_table_has_a_line_for_all() -> None:
    families = [FamilyFigure("part", 8_000_000, 2_000_000, 1_000_000, 1_000_000), FamilyFigure("brand", 1, 1, 0, 1)]
    found: dict[str, Any] = {
        "families": [vars(each) for each in families],
        "indexes": {"p:bloom": 20},
        "data_bytes": 1_000,
    }
    found["loads"] = {"seconds": 1.034, "cpu_seconds": 1.052, "rounds": [[[2.0, 1.0], [2.0, 1.0]]] * 3}
    console = Console(file=io.StringIO(), width=160)
    print_unforeseen(console, found, 0.1)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    part, brand, every = (line for line in text.splitlines() if "MB" in line and "│" in line)
    assert "4.0x" in part
    assert "2.7x" in part
    assert "8.0x" in part
    assert "1.0x" in brand
    assert every.split()[1] == "all"
    assert "2.00% of the data" in text
    assert "1.03 times the seconds of one without, 1.05 times the processors' (medians of 3 rounds" in text
