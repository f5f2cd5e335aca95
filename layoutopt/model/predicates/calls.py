"""The user-defined functions that conditions call."""

from __future__ import annotations

from collections.abc import Iterator

from layoutopt.model.predicates.nodes import And, Call, Comparison, Expr, InSet, Like, Node, Or
from layoutopt.model.udf import is_user_defined


def user_calls(x: Node | Expr) -> Iterator[Call]:
    """The calls of user-defined functions, in the order of the text.

    >>> from layoutopt.model.predicates import Col
    >>> from layoutopt.model.values import ValueSet
    >>> mine = Call("_layoutopt_agent_0123456789abcdef", (Call("lower", (Col("a", "string"),), "string"),), "string")
    >>> [call.fn for call in user_calls(InSet(mine, ValueSet.point("x")))]
    ['_layoutopt_agent_0123456789abcdef']
    """
    match x:
        case Call():
            if is_user_defined(x.fn):
                yield x
            for argument in x.args:
                yield from user_calls(argument)
        case And() | Or():
            for child in x.children:
                yield from user_calls(child)
        case Comparison():
            yield from user_calls(x.left)
            yield from user_calls(x.right)
        case InSet() | Like():
            yield from user_calls(x.subject)
        case _:
            return
