"""One expression of a table's columns, as filters would have it."""

from __future__ import annotations

from layoutopt.errors import SettingError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Expr, InSet
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import scans_of


def parse_expression(text: str, schema: Schema, settings: Settings | None = None, udfs: Udfs = NO_UDFS) -> Expr:
    """A column or a function of columns, in the form in which filters of it have their subject.

    Args:
        text: in Spark's SQL.
        schema: the table's.
        settings: of the session.
        udfs: the functions of users that it may call.

    Raises:
        SettingError: the text is no such expression.

    >>> from layoutopt.model.schema import Column
    >>> parse_expression("lower(S)", Schema((Column("s", "string"),)))
    Call(fn='lower', args=(Col(name='s', type='string'),), type='string')
    """
    try:
        (scan,) = scans_of(f"SELECT 1 FROM t WHERE ({text}) IS NOT NULL", {"t": schema}, settings=settings, udfs=udfs)
    except (StatementError, ValueError) as error:
        raise SettingError(f"{text!r} is no expression of the table's columns ({error}); name a column") from error
    root = scan.filter.root
    if scan.unusable:
        raise SettingError(f"{text!r} can't be used ({scan.unusable[0].detail}); name a column")
    if not isinstance(root, InSet) or not root.values.is_all or root.null:
        raise SettingError(f"{text!r} is no expression that may be NULL; name a column")
    return root.subject
