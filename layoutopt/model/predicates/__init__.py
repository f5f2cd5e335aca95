"""Filters: nouns, constructors, normal forms and texts."""

from layoutopt.model.predicates.nodes import (
    FALSE,
    TRUE,
    And,
    Call,
    Col,
    Comparison,
    Const,
    Constant,
    Expr,
    InSet,
    Like,
    Literal,
    Node,
    Opaque,
    Or,
    Predicate,
    columns_of,
    literals_of,
    order_of,
)
from layoutopt.model.predicates.normal import conjunction, conjuncts, disjunction, like, negate, simplified, untrue
from layoutopt.model.predicates.patterns import (
    ANY_CHAR,
    ANY_STRING,
    Pattern,
    Token,
    Wildcard,
    canonical_pattern,
    like_text,
    literal_prefix,
    matches,
    parse_like,
)
from layoutopt.model.predicates.render import describe, describe_all, to_sql
from layoutopt.model.predicates.subsume import MAX_CLAUSES, MAX_LITERALS, Filter, predicate_of

__all__ = [
    "ANY_CHAR", "ANY_STRING", "FALSE", "MAX_CLAUSES", "MAX_LITERALS", "TRUE", "And", "Call", "Col", "Comparison",
    "Const", "Constant", "Expr", "Filter", "InSet", "Like", "Literal", "Node", "Opaque", "Or", "Pattern", "Predicate",
    "Token", "Wildcard", "canonical_pattern", "columns_of", "conjunction", "conjuncts", "describe", "describe_all",
    "disjunction", "like", "like_text", "literal_prefix", "literals_of", "matches", "negate", "order_of",
    "parse_like", "predicate_of", "simplified", "to_sql", "untrue",
]  # fmt: skip
