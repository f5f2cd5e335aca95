"""Which types Spark 4 gives expressions and compares values in, by the names of types.

The rules are those of Spark's ``AnsiTypeCoercion`` and ``DecimalPrecision``. Where Spark refuses, or would round since
a decimal needs more than 38 digits, they raise :class:`Unusable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial, reduce

from layoutopt.model.types import decimal_digits, whole_type
from layoutopt.sql.problems import Unusable

INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The types of whole numbers, narrowest first, with the precision of the decimal that Spark takes them as."""
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp_ltz": "timestamp"}
_ATOMIC = frozenset({"boolean", "binary", "date", "timestamp", "timestamp_ntz"})
_MAX_PRECISION = 38
_QUOTIENT_PLACES = 6  # at least


def normal_type(name: str) -> str:
    """One name for each type: ``integer`` is ``int``, ``varchar(n)`` is compared as ``string``.

    >>> normal_type("VARCHAR(5)"), normal_type("decimal(5, 2)"), normal_type("decimal")
    ('string', 'decimal(5,2)', 'decimal(10,0)')
    """
    name = name.casefold().strip()
    if name.startswith("varchar"):
        return "string"
    if name.startswith("decimal"):
        precision, scale = [*re.findall(r"\d+", name), "0"][:2] if "(" in name else ("10", "0")
        return f"decimal({precision},{scale})"
    return _ALIASES.get(name, name)


def exact_digits(name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of the decimal that a type of whole numbers is taken as; None for others.

    >>> exact_digits("decimal(15,2)"), exact_digits("int"), exact_digits("date")
    ((15, 2), (10, 0), None)
    """
    return (INTEGER_DIGITS[name], 0) if name in INTEGER_DIGITS else decimal_digits(name)


def is_integer(name: str) -> bool:
    """Whether values are whole numbers: tinyint, smallint, int or bigint."""
    return name in INTEGER_DIGITS


def is_floating(name: str) -> bool:
    """Float or double."""
    return name in ("float", "double")


def is_number(name: str) -> bool:
    """Whole numbers, decimals, float or double."""
    return is_floating(name) or exact_digits(name) is not None


def number_type(text: str) -> str:
    """The type of a number written as ``text``: int, bigint or decimal; with an exponent, double.

    >>> number_type("5"), number_type("3000000000"), number_type("0.05"), number_type("12.5"), number_type("1e3")
    ('int', 'bigint', 'decimal(2,2)', 'decimal(3,1)', 'double')
    >>> number_type("2147483648"), number_type("-2147483648")
    ('bigint', 'int')

    Raises:
        Unusable: ``coercion``: more than 38 digits.
    """
    if "e" in text.casefold():
        return "double"
    whole, point, fraction = text.removeprefix("-").partition(".")
    whole_number = None if point else whole_type(int(text))
    if whole_number is not None:
        return whole_number
    digits = (whole + fraction).lstrip("0") or "0"
    return decimal_type(max(len(digits), len(fraction)), len(fraction))


def decimal_type(precision: int, scale: int) -> str:
    """The decimal type of that size.

    Raises:
        Unusable: ``coercion``: more than 38 digits, where Spark drops some.
    """
    if precision > _MAX_PRECISION:
        raise Unusable("coercion", f"decimal({precision},{scale}) has more digits than Spark keeps")
    return f"decimal({precision},{scale})"


def common_type(left: str, right: str) -> str:
    """The type that Spark compares two types in.

    >>> common_type("string", "int"), common_type("date", "string"), common_type("decimal(5,2)", "int")
    ('bigint', 'date', 'decimal(12,2)')

    Raises:
        Unusable: ``coercion``: Spark refuses, or a decimal would lose digits.
    """
    if left == right:
        return left
    if "void" in (left, right):
        return right if left == "void" else left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    pair = {left, right}
    if "string" in pair:
        return _promoted_string((pair - {"string"}).pop())
    if pair == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    if pair <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp"
    raise Unusable("coercion", f"Spark does not compare {left} with {right}")


def compared_type(left: str, right: str, *, ansi: bool, listed: bool = False) -> str:
    """The type that Spark compares two types in, in either mode.

    Args:
        left: one type.
        right: the other.
        ansi: whether ANSI mode is on. Without it Spark narrows texts to the type of a number beside them, NULL where
            they don't fit, and whole numbers to a float.
        listed: whether they stand in one list (IN, coalesce), of which Spark makes texts without ANSI mode.

    Raises:
        Unusable: ``coercion``: Spark refuses, a decimal would lose digits, or ANSI mode is off and the type another.
    """
    pair = {left, right}
    if not ansi and len(pair) == 2 and "void" not in pair:
        texts = "string" in pair and (listed or is_number(left) or is_number(right))
        if texts or ("float" in pair and pair & INTEGER_DIGITS.keys()):
            raise Unusable("coercion", f"{left} and {right} meet in another type without ANSI mode")
    return common_type(left, right)


def listed_type(types: Iterable[str], *, ansi: bool) -> str:
    """The type that all values of a list (coalesce, the branches of CASE) have; raises as :func:`compared_type`."""
    return reduce(partial(compared_type, ansi=ansi, listed=True), types, "void")


def _common_number(left: str, right: str) -> str:
    if is_integer(left) and is_integer(right):
        return max(left, right, key=INTEGER_DIGITS.__getitem__)
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None:
        return "double"  # Spark takes float with an integral or decimal as double
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale, scale)


def _promoted_string(other: str) -> str:
    if is_integer(other):
        return "bigint"
    if is_number(other):
        return "double"
    if other in _ATOMIC:
        return other
    raise Unusable("coercion", f"Spark does not compare string with {other}")


def arithmetic_type(operator: str, left: str, right: str) -> str:
    """The type of ``left operator right`` of two numbers, for ``+``, ``-`` and ``*``, and of a decimal for ``/``.

    >>> arithmetic_type("*", "decimal(15,2)", "decimal(16,2)"), arithmetic_type("-", "int", "decimal(15,2)")
    ('decimal(32,4)', 'decimal(16,2)')
    >>> arithmetic_type("/", "decimal(15,2)", "decimal(1,0)")
    'decimal(19,6)'

    Raises:
        Unusable: ``coercion``: a decimal would lose digits.
    """
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None or (is_integer(left) and is_integer(right)):
        return _common_number(left, right)
    if operator == "*":
        return decimal_type(first[0] + second[0] + 1, first[1] + second[1])
    if operator == "/":
        scale = max(_QUOTIENT_PLACES, first[1] + second[0] + 1)
        return decimal_type(first[0] - first[1] + second[1] + scale, scale)
    scale = max(first[1], second[1])
    return decimal_type(max(first[0] - first[1], second[0] - second[1]) + scale + 1, scale)
