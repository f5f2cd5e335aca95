"""What a report prints."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console


def printed(show: Callable[..., None], *args: object, width: int = 300, **more: object) -> str:
    """Return what a function prints to a console, given it and other arguments."""
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False, markup=False), *args, **more)
    return out.getvalue()
