"""Errors that cross processes as texts keep their classes and attributes."""

from __future__ import annotations

from layoutopt.errors import CatalogError, QueryError, SourceIndexError, TableError, decode_error, encode_error


class PackageQueryError(QueryError):
    """An error of another package, with a constructor of its own."""

    def __init__(self, table: str, line: int) -> None:
        super().__init__(f"{table} has no line {line}")
        self.table = table


def test_subclasses_of_other_packages_are_kept() -> None:
    error = decode_error(f"a task failed: {encode_error(PackageQueryError('t', 3))} in a worker")
    assert type(error) is PackageQueryError
    assert (str(error), error.table, error.exit_code) == ("t has no line 3", "t", 2)


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
