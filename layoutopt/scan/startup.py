"""Keeping short commands short: what would be imported for nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

_UNWANTED = "pandas"


class _Absent:
    """Says of pandas that it is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Part of Python's import: None leaves the search to others."""
        if name == _UNWANTED:
            raise ModuleNotFoundError(f"{name} is not looked for here", name=name)


def spare_pandas() -> None:
    """Let pyarrow ask for pandas now and be told that there is none.

    It asks once, when it makes its first array or scalar, to see whether what it was given is of pandas. Where that is
    installed, that one question imports it, which takes as long as all the rest of a short query. Who imports pandas
    later can convert to it as ever.
    """
    if _UNWANTED in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(absent)
