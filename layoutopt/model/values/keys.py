"""Keys: the values of every ordered Spark type as Python values in Spark's order.

Numbers, dates, timestamps and booleans become ``int``, strings ``str`` (Spark compares UTF-8 bytes, whose order is that
of the code points, which is Python's), binary ``bytes``. Nested types, intervals, CHAR (padded) and collated strings
have no keys.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, cast

import numpy as np

from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.types import INTEGER_BITS, decimal_digits, type_sql

Key = int | str | bytes

_INT_KEYED: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", "float", "double", *INTEGER_BITS})
_FLOATS: Final = ("float", "double")
_SIGN: Final = 0x7FFF_FFFF_FFFF_FFFF
_INFINITY_KEY: Final = 0x7FF0_0000_0000_0000
# The key of NaN: to Spark all NaNs are equal, and greater than infinity.
NAN_KEY: Final[int] = _INFINITY_KEY + 1
_DAY_ZERO: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
# Decimals beyond 10 to this power are refused: no Spark type holds them, and their integers would be huge.
_LARGEST_EXPONENT: Final = 400


@lru_cache(maxsize=1024)
def key_kind(type: str) -> Literal["int", "str", "bytes"] | None:
    """Return the Python type of a Spark type's keys; None where the type has no known order.

    >>> [key_kind(t) for t in ("date", "decimal(15,2)", "string", "binary", "char(5)", "array<int>")]
    ['int', 'int', 'str', 'bytes', None, None]
    """
    if type in _INT_KEYED or decimal_digits(type):
        return "int"
    if type == "string" or re.fullmatch(r"varchar\(\d+\)", type):
        return "str"
    return "bytes" if type == "binary" else None


@lru_cache(maxsize=1024)
def domain(type: str) -> tuple[Key | None, Key | None]:
    """Return the smallest and the largest key of a type, both included; None where there is none.

    >>> domain("tinyint"), domain("string")
    ((-128, 127), ('', None))
    """
    kind = key_kind(type)
    if kind != "int":
        return {"str": "", "bytes": b"", None: None}[kind], None
    if type == "boolean":
        return 0, 1
    if type in _FLOATS:
        return -_INFINITY_KEY, NAN_KEY
    digits = decimal_digits(type)
    if digits:
        return 1 - 10 ** digits[0], 10 ** digits[0] - 1
    bits = 32 if type == "date" else INTEGER_BITS.get(type, 64)
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def successor(key: Key) -> Key:
    r"""Return the next larger key, so that ``[key, successor(key))`` holds only the key.

    >>> successor(5), successor("a"), successor(b"")
    (6, 'a\x00', b'\x00')
    """
    if isinstance(key, str):
        return key + "\0"
    return key + b"\0" if isinstance(key, bytes) else key + 1


def float_keys(values: Floats) -> Ints:
    """Return the keys of doubles: float64[n] to int64[n].

    The keys are dense: neighbouring doubles have neighbouring keys, -0.0 and 0.0 the key 0, every NaN ``NAN_KEY``.

    >>> float_keys(np.array([-0.0, 5e-324, -5e-324, np.inf])).tolist()
    [0, 1, -1, 9218868437227405312]
    """
    doubles = np.asarray(values, dtype=np.float64)
    bits = np.ascontiguousarray(doubles).view(np.int64)
    below = bits >> 63
    keys = bits & np.int64(_SIGN)
    keys ^= below  # with the next line, minus the key where the sign is set
    keys -= below
    nan = np.isnan(doubles)
    if nan.any():
        keys[nan] = NAN_KEY
    return keys


def float_key(value: float) -> int:
    """Return the key of one double; see :func:`float_keys`."""
    if value != value:
        return NAN_KEY
    bits = int(struct.unpack("<q", struct.pack("<d", value))[0])
    return bits if bits >= 0 else -(bits & _SIGN)


def key_to_float(key: int) -> float:
    """Return the double of a key; the inverse of :func:`float_key` up to the sign of zero and the bits of NaN."""
    if key == NAN_KEY:
        return float("nan")
    bits = key if key >= 0 else -key - _SIGN - 1
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def ceil_float32(key: int) -> int:
    """Return the smallest key of a 32-bit float that is not below this key of a double.

    >>> key_to_float(ceil_float32(float_key(0.1)))
    0.10000000149011612
    """
    value = key_to_float(key)
    if value != value or value in (float("inf"), float("-inf")):
        return key
    with np.errstate(over="ignore", under="ignore"):  # beyond the largest stands infinity, below the smallest zero
        nearest = np.float32(value)
        if float(nearest) < value:
            nearest = np.nextafter(nearest, np.float32(np.inf))
    return float_key(float(nearest))


def to_key(value: object, type: str) -> Key:
    """Return the key of a Python value of a Spark type; raise ValueError if the type can't hold it exactly.

    A timestamp is a ``datetime`` with a zone, a timestamp_ntz one without.

    >>> from decimal import Decimal
    >>> to_key(Decimal("1.5"), "decimal(15,2)"), to_key(dt.date(1970, 1, 3), "date")
    (150, 2)
    """
    kind = key_kind(type)
    if kind is None:
        raise ValueError(f"values of type {type!r} have no order here; leave the expression out")
    key = _to_text_key(value, kind) if kind != "int" else _to_int_key(value, type)
    low, high = domain(type)
    if key is None or (isinstance(key, int) and not cast(int, low) <= key <= cast(int, high)):
        raise ValueError(f"{value!r} is no value of type {type!r}; give one that it holds exactly")
    return key


def _to_text_key(value: object, kind: str) -> Key | None:
    if kind == "bytes":
        return bytes(value) if isinstance(value, bytes | bytearray) else None
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return str(value)


def _to_int_key(value: object, type: str) -> int | None:
    if type == "boolean":
        return int(value) if isinstance(value, bool) else None
    if type in ("date", "timestamp", "timestamp_ntz"):
        return _to_time_key(value, type)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if type in _FLOATS:
        return _to_float_key(value, type)
    digits = decimal_digits(type)
    exact = exact_number(value)
    if exact is None:
        return None
    scaled = exact * 10 ** (digits[1] if digits else 0)
    return scaled.numerator if scaled.denominator == 1 else None


def _to_time_key(value: object, type: str) -> int | None:
    if type == "date":
        is_date = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        return (cast(dt.date, value) - _DAY_ZERO).days if is_date else None
    if not isinstance(value, dt.datetime) or (value.tzinfo is not None) != (type == "timestamp"):
        return None
    return (value - (_EPOCH_UTC if value.tzinfo else _EPOCH)) // _MICROSECOND


def _to_float_key(value: int | float | Decimal, type: str) -> int | None:
    try:
        double = float(value)
    except OverflowError:
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return float_key(double)
    if double == double and double != value:
        return None
    key = float_key(double)
    return key if type == "double" or ceil_float32(key) == key else None


def exact_number(value: int | float | Decimal) -> Fraction | None:
    """Return the number as a fraction; None for NaN, infinities and decimals too large for any Spark type."""
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _LARGEST_EXPONENT:
            return None
        return Fraction(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return Fraction(value)


def from_key(key: Key, type: str) -> object:
    """Return the Python value of a key; raise ValueError for dates beyond the years 1 to 9999, as for invalid keys.

    >>> from_key(150, "decimal(15,2)"), from_key(0, "date")
    (Decimal('1.50'), datetime.date(1970, 1, 1))
    """
    _require_kind(key, type)
    if not isinstance(key, int):
        return key
    if type == "boolean":
        return bool(key)
    if type in _FLOATS:
        return key_to_float(key)
    digits = decimal_digits(type)
    if digits:
        return Decimal(key).scaleb(-digits[1], Context(prec=100))
    return _from_time_key(key, type) if type in ("date", "timestamp", "timestamp_ntz") else key


def _require_kind(key: Key, type: str) -> None:
    low, high = domain(type)
    fits = key.__class__.__name__ == key_kind(type)
    if not fits or (isinstance(key, int) and not cast(int, low) <= key <= cast(int, high)):
        raise ValueError(f"{key!r} is no key of type {type!r}; give one within its domain")


def _from_time_key(key: int, type: str) -> dt.date | dt.datetime:
    try:
        if type == "date":
            return _DAY_ZERO + dt.timedelta(days=key)
        return (_EPOCH_UTC if type == "timestamp" else _EPOCH) + key * _MICROSECOND
    except OverflowError as error:
        raise ValueError(f"the {type} with key {key} lies beyond the years 1 to 9999; show the key") from error


_SUFFIXES: Final = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\'$]")


def constant_sql(key: Key | None, type: str) -> str:
    r"""Return a constant of a type as Spark SQL, independent of the session's settings.

    >>> constant_sql(150, "decimal(15,2)"), constant_sql("it's", "string"), constant_sql(0, "date")
    ("CAST('1.50' AS DECIMAL(15,2))", "'it\\u0027s'", "DATE'1970-01-01'")
    """
    if key is None:
        return f"CAST(NULL AS {type_sql(type).upper()})"
    if isinstance(key, bytes):
        return f"X'{key.hex().upper()}'"
    if isinstance(key, str):
        return text_sql(key)
    if type in _SUFFIXES:
        return f"{key}{_SUFFIXES[type]}"
    if type == "boolean":
        return str(bool(key)).upper()
    if type in ("date", "timestamp", "timestamp_ntz"):
        return _to_time_sql(key, type)
    return f"CAST('{from_key(key, type)}' AS {type.upper()})"


def text_sql(text: str) -> str:
    """Return a string constant, with escaped quotes, controls and ``$`` (Spark replaces ``${...}`` anywhere)."""
    escaped = _UNSAFE.sub(lambda match: "\\\\" if match[0] == "\\" else f"\\u{ord(match[0]):04x}", text)
    return f"'{escaped}'"


def _to_time_sql(key: int, type: str) -> str:
    if type == "timestamp":
        return f"timestamp_micros({key}L)"  # a literal's text would depend on the session's time zone
    value = time_of(key, type)
    if type == "date":
        return f"DATE'{value}'" if value else f"date_from_unix_date({key})"
    if value:
        return f"TIMESTAMP_NTZ'{value.isoformat().replace('T', ' ')}'"
    return f"timestampadd(MICROSECOND, {key}L, TIMESTAMP_NTZ'1970-01-01 00:00:00')"


def time_of(key: int, type: str) -> dt.date | None:
    """Return the date or datetime of a key; None beyond the years that Python supports."""
    try:
        value = from_key(key, type)
    except ValueError:
        return None
    return value if isinstance(value, dt.date) else None


def short_constant(key: Key | None, type: str) -> str:
    """Return a constant for people.

    >>> short_constant("it's", "string"), short_constant(0, "timestamp")
    ("'it''s'", '1970-01-01 00:00:00+00:00')
    """
    if key is None:
        return "NULL"
    if isinstance(key, bytes):
        return f"X'{key.hex().upper()}'"
    if isinstance(key, str):
        return "'" + key.replace("'", "''") + "'"
    if type in ("date", "timestamp", "timestamp_ntz"):
        return str(time_of(key, type) or f"{type}({key})")
    return str(from_key(key, type)) if key_kind(type) == "int" else str(key)
