"""Templates: regular expressions of a few plain forms, which Java and Python take alike.

One character after the other: letters, digits and signs as they are or behind a backslash, ``.``, ``\\d``, ``\\w``,
``\\s``, ``[A-Z0-9_-]`` or ``[^/]``, each with at most one of ``*``, ``+``, ``?``, ``{2}``, ``{2,4}``; groups of these,
neither nested nor repeated; ``^`` at the beginning and ``$`` at the end.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_CLASS: Final = r"\[\^?(?:\\[dws]|[a-z]-[a-z]|[A-Z]-[A-Z]|\d-\d|[\w ./:;,@#%=+*?!$()|])+-?\]"
_TIMES: Final = r"(?:[*+?]|\{\d{1,3}(?:,\d{1,3})?\})?"
_ATOM: Final = rf"(?:[\w /:;,@#%=<>!~\"'-]|\\[dws]|\\[.\-+*?^$|(){{}}\[\]/\\]|\.|{_CLASS}){_TIMES}"
_TEMPLATE: Final = re.compile(rf"\^?(?:{_ATOM}|\((?:{_ATOM})+\))+\$?", re.ASCII)
_LINE_ENDS: Final = re.compile("[\n\r\u0085\u2028\u2029]")
_LONGEST: Final = 200


@lru_cache(maxsize=256)
def template_groups(pattern: str) -> int | None:
    """How many groups a template has; None where the pattern is no template.

    >>> [template_groups(each) for each in ("^([A-Z]{2})-(\\\\d+)$", "a", "(a|b)", "(a*)*")]
    [2, 0, None, None]
    """
    if len(pattern) > _LONGEST or not _TEMPLATE.fullmatch(pattern):
        return None
    try:
        return re.compile(pattern, re.ASCII).groups
    except re.error:  # a class whose range runs backwards, or {4,2}
        return None


def extracted(text: str, pattern: str, group: int) -> str | None:
    """What Spark's ``regexp_extract`` gives; None where that is not known: by Java, lines end otherwise than by Python.

    >>> extracted("AB-1234", "^([A-Z]+)-", 1), extracted("1234", "^([A-Z]+)-", 1)
    ('AB', '')
    """
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups or _LINE_ENDS.search(text):
        return None
    found = re.search(pattern, text, re.ASCII)
    return "" if found is None else found[group] or ""
