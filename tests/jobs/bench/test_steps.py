from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.bench.steps import UNKNOWN, Json, Step, code_version, how_made, key_of, run


def recording(name: str, folder: Path, made: list[str], needs: tuple[Step, ...] = ()) -> Step:
    def make() -> Json:
        made.append(name)
        return {"made": name}

    return Step(name, folder / f"{name}.json", make, needs)


def test_needs_run_first_and_nothing_runs_twice(tmp_path: Path) -> None:
    made: list[str] = []
    first = recording("first", tmp_path, made)
    last = recording("last", tmp_path, made, (first, recording("second", tmp_path, made, (first,))))
    said: list[str] = []
    assert run(last, said.append) == {"made": "last"}
    assert made == said == ["first", "second", "last"]
    assert run(last, said.append) == {"made": "last"}
    assert made == ["first", "second", "last"]


def test_a_failed_step_leaves_no_product_and_is_taken_up_again(tmp_path: Path) -> None:
    made: list[str] = []
    first = recording("first", tmp_path, made)

    def fail() -> Json:
        raise RuntimeError("disk full")

    failing = Step("last", tmp_path / "last.json", fail, (first,))
    with pytest.raises(RuntimeError, match="disk full"):
        run(failing, made.append)
    assert not failing.product.exists()
    assert run(recording("last", tmp_path, made, (first,)), lambda _: None) == {"made": "last"}
    assert made.count("first") == 2  # said once, made once: not made again after the failure


def test_products_are_readable_json(tmp_path: Path) -> None:
    step = recording("one", tmp_path / "deep", [])
    run(step, lambda _: None)
    assert json.loads(step.product.read_text()) == {"made": "one"}
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == [".one.json.made", "one.json"]


def test_how_products_were_made_is_known_of_all_that_a_step_needs(tmp_path: Path) -> None:
    first = recording("first", tmp_path, [])
    last = recording("last", tmp_path, [], (first, first))
    run(last, lambda _: None)
    made = how_made([last, first])
    assert [each.product.stem for each in made] == ["first", "last"]
    assert {each.code for each in made} == {code_version()}
    (tmp_path / ".first.json.made").unlink()
    assert [each.code for each in how_made([last])] == [UNKNOWN, code_version()]


def test_keys_name_the_parameters() -> None:
    assert key_of("SOP, by month", {"x": 1}).startswith("sop-by-month-")
    assert key_of("sop", {"x": 1}) != key_of("sop", {"x": 2})
