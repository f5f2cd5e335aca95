"""All functions that filters may contain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from layoutopt.functions import dates, numbers, texts
from layoutopt.functions.function import Function

# The functions by Spark's names; a user's function has another name in filters.
FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {function.name: function for module in (numbers, dates, texts) for function in module.FUNCTIONS}
)
