"""A door opens a source by the next opener where the last does not suffice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from layoutopt.errors import ContentMismatchError, NeedsSparkError, SettingError, SourceError
from layoutopt.sources.door import Door, refuse_spark


def fail_for(source: str, *names: str) -> str:
    """Return the source, unless it is one of some."""
    if source in names:
        raise NeedsSparkError(f"{source} does not suffice")
    return source


def test_the_first_that_suffices_is_used_from_then_on() -> None:
    opened: list[str] = []
    said: list[str] = []

    def open_as(name: str) -> str:
        opened.append(name)
        return fail_for(name, "b")

    door = Door(*(lambda _, name=name: open_as(name) for name in "abcd"), say=said.append)
    assert not opened
    assert door.source == door.read(fail_for) == "a"
    assert door.read(lambda source: fail_for(source, "a")) == "c"
    assert door.source == "c"
    assert opened == ["a", "b", "c"]
    assert said == ["reading by Spark: b does not suffice"]


def test_the_last_raises_what_it_raises() -> None:
    door = Door(lambda _: "a", lambda _: "b")
    with pytest.raises(NeedsSparkError, match="b does"):
        door.read(lambda source: fail_for(source, "a", "b"))
    with pytest.raises(NeedsSparkError, match="b does"):  # once more
        door.read(lambda source: fail_for(source, "b"))
    with pytest.raises(SourceError):
        Door(lambda _: "a", lambda _: "b").read(lambda source: raise_error(SourceError("damaged")))


def raise_error(error: Exception) -> str:
    raise error


@pytest.mark.parametrize("distrusts", [False, True])
def test_other_sums_lead_on_where_that_is_wanted(distrusts: bool) -> None:
    tried: list[str] = []

    def use(source: str) -> str:
        tried.append(source)
        return raise_error(ContentMismatchError("other sums")) if source == "a" else source

    door = Door(lambda _: "a", lambda _: "b", distrusts=distrusts)
    if distrusts:
        assert door.read(use) == "b"
    else:
        with pytest.raises(ContentMismatchError):
            door.read(use)
    assert tried == ["a", "b"][: 1 + distrusts]


def test_without_spark_the_reason_is_told() -> None:
    door = Door(lambda _: "a", lambda reason: refuse_spark("rows.orc", reason))
    with pytest.raises(SettingError, match=r"'rows.orc' can't be read without Spark: a does not.*--executor spark"):
        door.read(lambda source: fail_for(source, "a"))
    with pytest.raises(pa.ArrowInvalid):
        Door(lambda _: "a", lambda reason: refuse_spark("x", reason)).read(lambda _: raise_error(pa.ArrowInvalid("no")))
