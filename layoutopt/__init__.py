"""layoutopt: rewrites date-partitioned Parquet tables into blocks that the queries of a log can skip.

    >>> import layoutopt
    >>> layoutopt.load  # doctest: +ELLIPSIS
    <function load at ...>

Names are imported on first use: importing the package is quick and needs neither Spark nor DuckDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layoutopt.errors import (
    BoundError,
    CatalogError,
    CommitConflictError,
    ContentMismatchError,
    DataFileError,
    InputError,
    LayoutoptError,
    LogError,
    NotATableError,
    PlanError,
    QueryError,
    SchemaError,
    SettingError,
    SourceError,
    TableError,
)

if TYPE_CHECKING:
    from layoutopt.api.functions import analyze, append, delete, evaluate, load, merge, optimize, plan, update
    from layoutopt.api.up import up
    from layoutopt.inspect.verify import VerifyReport, verify
    from layoutopt.model.udf import Udf, udf
    from layoutopt.scan.explain import Explanation
    from layoutopt.scan.table import Scan, Table, open_source, open_table

__version__ = "0.1.0"

__all__ = [
    "BoundError", "CatalogError", "CommitConflictError", "ContentMismatchError", "DataFileError", "Explanation",
    "InputError", "LayoutoptError", "LogError", "NotATableError", "PlanError", "QueryError", "Scan", "SchemaError",
    "SettingError", "SourceError", "Table", "TableError", "Udf", "VerifyReport", "analyze", "append", "delete",
    "evaluate", "load", "merge", "open_source", "open_table", "optimize", "plan", "udf", "up", "update",
    "verify",
]  # fmt: skip

_LAZY = {
    "Explanation": "layoutopt.scan.explain",
    "Scan": "layoutopt.scan.table",
    "Table": "layoutopt.scan.table",
    "Udf": "layoutopt.model.udf",
    "VerifyReport": "layoutopt.inspect.verify",
    **dict.fromkeys(
        ("analyze", "append", "delete", "evaluate", "load", "merge", "optimize", "plan", "update"),
        "layoutopt.api.functions",
    ),
    "open_source": "layoutopt.scan.table",
    "open_table": "layoutopt.scan.table",
    "udf": "layoutopt.model.udf",
    "up": "layoutopt.api.up",
    "verify": "layoutopt.inspect.verify",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
