"""The functions of the user's, named as MODULE:FUNCTION after a flag or in a configuration file."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from layoutopt.errors import SettingError
from layoutopt.model.udf import Udf, as_udf

_NAMED: Final = re.compile(r"(?:(?P<name>\w+)\s*=\s*)?(?P<module>[\w.]+):(?P<function>[\w.]+)")


def find_udfs(texts: Sequence[str]) -> tuple[Udf, ...]:
    """Import functions; modules are looked for in the working folder too.

    Args:
        texts: each ``MODULE:FUNCTION``, or ``NAME=MODULE:FUNCTION`` where SQL texts call it otherwise.

    Raises:
        SettingError: a text names no function, or its module can't be imported.
    """
    return tuple(_find(text) for text in texts)


def _find(text: str) -> Udf:
    named = _NAMED.fullmatch(text.strip())
    if named is None:
        raise SettingError(f"{text!r} names no function; write MODULE:FUNCTION, or NAME=MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:  # an installed command has its own folder there instead
        sys.path.append(here)
    try:
        found: object = importlib.import_module(named["module"])
        for part in named["function"].split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module does as it is imported
        raise SettingError(
            f"the function {text!r} can't be imported ({type(error).__name__}: {error}); check its name"
        ) from error
    return as_udf(found, named["name"] and named["name"].lower())
