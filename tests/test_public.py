"""The public face: what `import layoutopt` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import layoutopt

PUBLIC = [
    "BoundError", "CatalogError", "CommitConflictError", "ContentMismatchError", "DataFileError", "Explanation",
    "InputError", "LayoutoptError", "LogError", "NotATableError", "PlanError", "QueryError", "Scan", "SchemaError",
    "SettingError", "SourceError", "Table", "TableError", "Udf", "VerifyReport", "analyze", "append", "delete",
    "evaluate", "load", "merge", "open_source", "open_table", "optimize", "plan", "udf", "up", "update",
    "verify",
]  # fmt: skip

HEAVY = ("pyspark", "duckdb", "pyarrow", "sqlglot", "numpy", "pandas", "rich")


def test_the_names_are_these() -> None:
    assert layoutopt.__all__ == PUBLIC


def test_every_name_is_there_and_documented() -> None:
    for name in layoutopt.__all__:
        assert getattr(layoutopt, name).__doc__, name
        assert name in dir(layoutopt)


def test_errors_have_one_root() -> None:
    for name in layoutopt.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(layoutopt, name), layoutopt.LayoutoptError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(layoutopt, "nonsense")


def _modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not _modules_after("import layoutopt") & set(HEAVY)


def test_opening_tables_needs_no_spark() -> None:
    assert "pyspark" not in _modules_after("import layoutopt; layoutopt.open_table; layoutopt.verify")
