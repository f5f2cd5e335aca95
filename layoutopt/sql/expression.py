"""One expression of a table's columns, as filters would have it."""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.errors import SettingError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Expr, InSet, Node, conjunction, to_sql
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udf, Udfs
from layoutopt.sql.implied import implied_texts
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import scans_of


def implied_node(
    udf: Udf, operator: str | None, arguments: Sequence[Expr], value: Expr | None, schema: Schema, settings: Settings
) -> Node:
    """Return what a call of a user's function that compares so with a value implies about columns; TRUE for nothing.

    Args:
        udf: the function.
        operator: of the comparison, the call on its left side; None where the call itself is the condition.
        arguments: of the call.
        value: the constant that it is compared with.
        schema: the table's.
        settings: of the session.

    Raises:
        SettingError: what the function implies is no condition, or the call has another number of arguments.
    """
    texts = implied_texts(udf, operator, list(map(to_sql, arguments)), None if value is None else to_sql(value))
    tables = {"t": schema}
    return conjunction(
        scan.filter.root
        for text in texts
        for scan in scans_of(f"SELECT 1 FROM t WHERE {text}", tables, settings=settings)
    )


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
