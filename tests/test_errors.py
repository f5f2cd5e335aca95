"""Errors that cross processes as texts keep their classes and attributes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import CatalogError, QueryError, SourceIndexError, TableError, decode_error, encode_error


class PackageQueryError(QueryError):
    """An error of another package, with a constructor of its own."""

    def __init__(self, table: str, line: int) -> None:
        super().__init__(f"{table} has no line {line}")
        self.table, self.line, self.source = table, line, object()


def test_subclasses_of_other_packages_are_kept() -> None:
    error = decode_error(f"a task failed: {encode_error(PackageQueryError('t', 3))} in a worker")
    assert type(error) is PackageQueryError
    assert (str(error), error.exit_code) == ("t has no line 3", 2)
    assert vars(error) == {"table": "t", "line": 3}  # not the source, which is no JSON


@given(st.text(), st.text(), st.text())
def test_any_message_is_kept_within_any_text(message: str, before: str, after: str) -> None:
    text = f"{before}{encode_error(SourceIndexError(message, after))}{after}"
    error = decode_error(text)
    assert type(error) is SourceIndexError
    assert (str(error), error.source) == (message, after)


@pytest.mark.parametrize("message", ["x}:end", "layoutopt-error:", 'layoutopt-error:{"kinds": []', 'a\n"b\\"'])
def test_messages_that_look_like_the_encoding_are_kept(message: str) -> None:
    error = decode_error(f"{encode_error(QueryError(message))}:end")
    assert type(error) is QueryError
    assert str(error) == message


def test_attributes_are_kept() -> None:
    error = decode_error(str(encode_error(SourceIndexError("it holds indexes", "s3://rows"))))
    assert type(error) is SourceIndexError
    assert error.source == "s3://rows"


def test_an_unknown_class_becomes_its_nearest_known_base() -> None:
    text = str(encode_error(CatalogError("damaged"))).replace("errors.CatalogError", "elsewhere.OtherError")
    error = decode_error(text)
    assert type(error) is TableError
    assert str(error) == "damaged"


def test_other_texts_hold_no_error() -> None:
    assert decode_error("java.lang.RuntimeException: no error of ours") is None
    assert decode_error("layoutopt-error:3 is quoted") is None
    assert decode_error(str(encode_error(CatalogError("damaged")))[:-1]) is None  # cut off
