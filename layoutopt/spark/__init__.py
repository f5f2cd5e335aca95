"""Everything that needs Spark; the names here are for users of a Spark session, and are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutopt.advice import Advice
    from layoutopt.model.requests import AdviseRequest
    from layoutopt.spark.core.functions import declare
    from layoutopt.spark.planning.advise import advise
    from layoutopt.spark.session.enabling import disable, enable, last_scans, read_table, why
    from layoutopt.spark.session.metrics import ScanMetrics
    from layoutopt.spark.session.tables import register, unregister

__all__ = [
    "Advice",
    "AdviseRequest",
    "ScanMetrics",
    "advise",
    "declare",
    "disable",
    "enable",
    "last_scans",
    "read_table",
    "register",
    "unregister",
    "why",
]

_LAZY = {
    "Advice": "layoutopt.advice",
    "AdviseRequest": "layoutopt.model.requests",
    "ScanMetrics": "layoutopt.spark.session.metrics",
    "advise": "layoutopt.spark.planning.advise",
    "declare": "layoutopt.spark.core.functions",
    "disable": "layoutopt.spark.session.enabling",
    "enable": "layoutopt.spark.session.enabling",
    "last_scans": "layoutopt.spark.session.enabling",
    "read_table": "layoutopt.spark.session.enabling",
    "register": "layoutopt.spark.session.tables",
    "unregister": "layoutopt.spark.session.tables",
    "why": "layoutopt.spark.session.enabling",
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
