"""What a plan indexes: an expression of a row, and the type of index that each block gets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Final

from layoutopt.model.predicates import Expr, describe
from layoutopt.model.predicates.normal import array_of
from layoutopt.model.records import Form, HashedOnce, Record

_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class IndexSpec(HashedOnce, Record):
    """One index of a plan: every block that holds the expression's columns gets one.

    Attributes:
        subject: a column, a function of columns, or all elements of an array
            (:mod:`layoutopt.model.predicates.normal`).
        kind: the type of index, by its name in ``plan --index`` (:mod:`layoutopt.indexes`).
        parameter: the type's tuning parameter, such as Bloom's false positive rate; None for the type's default.
    """

    subject: Expr
    kind: str
    parameter: float | None = None

    form: ClassVar = Form(names={"subject": "of"}, left_out=("parameter",))

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ValueError(f"{self.kind[:80]!r} is no type of index; give lower-case letters, digits and dashes")
        if self.parameter is not None and not isfinite(self.parameter):
            raise ValueError(f"the index {self.kind!r} has the parameter {self.parameter}; give a finite number")
        if not self.subject.columns:
            raise ValueError(f"the index {self.kind!r} has no column; name one")

    def __str__(self) -> str:
        text = f"{describe(array_of(self.subject) or self.subject)}:{self.kind}"
        return text if self.parameter is None else f"{text}:{self.parameter:g}"
