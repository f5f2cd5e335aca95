"""Functions of the user's in DuckDB: each by a name that nothing else has, with the types that a text gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.udf import Udf

_NAMES: Final = {"boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE"}


@dataclass(frozen=True)
class PortableFunction:
    """A function of the user's as a DuckDB text calls it.

    Attributes:
        name: in DuckDB.
        udf: the function.
        parameters: DuckDB's types of its arguments.
        returns: DuckDB's type of its result.
    """

    name: str
    udf: Udf
    parameters: tuple[str, ...]
    returns: str


def portable_function(udf: Udf, parameters: Sequence[str]) -> PortableFunction | None:
    """The function for arguments of these Spark types; None where Python would get other values than from Spark.

    >>> length = Udf("length", "int", len, ("text",), {}, "00")
    >>> portable_function(length, ["string"]).parameters, portable_function(length, ["timestamp"])
    (('VARCHAR',), None)
    """
    found = [_type_name(each) for each in (*parameters, udf.returns)]
    if None in found or (not parameters and udf.returns in ("float", "double")):  # which might be NaN
        return None
    *taken, returns = map(str, found)
    signature = sha256(" ".join(taken).encode()).hexdigest()[:8]
    return PortableFunction(f"{udf.measured_name}_{signature}", udf, tuple(taken), returns)


def _type_name(spark: str) -> str | None:
    """DuckDB's type whose values Python sees as Spark's Python functions see them."""
    if spark in INTEGER_BITS:
        return spark.upper()
    digits = decimal_digits(spark)
    return _NAMES.get(spark) if digits is None else f"DECIMAL({digits[0]},{digits[1]})"
