"""Values of every type that statistics are kept of."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
}

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(18,4)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4)),
    "decimal(38,10)": st.integers(-(10**27), 10**27).map(lambda n: Decimal(n).scaleb(-10)),
    "string": st.text(max_size=70),
    "binary": st.binary(max_size=70),
}
