"""Everything that needs Spark; the names here are for users of a Spark session, and are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutopt.spark.enabling import disable, enable, last_scans
    from layoutopt.spark.metrics import ScanMetrics
    from layoutopt.spark.tables import register, unregister

__all__ = ["ScanMetrics", "disable", "enable", "last_scans", "register", "unregister"]

_LAZY = {
    "ScanMetrics": "layoutopt.spark.metrics",
    "disable": "layoutopt.spark.enabling",
    "enable": "layoutopt.spark.enabling",
    "last_scans": "layoutopt.spark.enabling",
    "register": "layoutopt.spark.tables",
    "unregister": "layoutopt.spark.tables",
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
