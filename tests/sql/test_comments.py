"""Comments are what Spark's lexer leaves out, and nothing else moves."""

from __future__ import annotations

import pytest

from layoutopt.sql.dialect import parse_statement, split_statements
from layoutopt.sql.lexing import without_comments

NONE = [
    "SELECT '-- a', \"/* b */\", `c--d` FROM t", "SELECT r'\\', 'x' FROM t", "SELECT 'it''s -- a', \"b\"\"/*\" FROM t",
    "SELECT '\\'-- a' FROM t", "SELECT /*+ BROADCAST(u) */ a FROM t", "SELECT `a``--` FROM t", "SELECT a - -1 FROM t",
    "SELECT bar'--' FROM t",
]  # fmt: skip
SOME = [
    ("SELECT a -- b\n+ 1", "SELECT a     \n+ 1"),
    ("SELECT a -- b\\\n+ 1\n, c", "SELECT a      \n   \n, c"),
    ("SELECT a -- b\r+ 1", "SELECT a     \r+ 1"),
    ("SELECT a /* b /* c */ d */ + 1", "SELECT a                   + 1"),
    ("SELECT a /* /*+ b */ + 1 -- */", "SELECT a " + " " * 11 + " + 1 " + " " * 5),
    ("SELECT a /*/ + 1 */ + 2", "SELECT a            + 2"),
    ("SELECT 5--3", "SELECT 5   "),
    ("SELECT '/*' -- '\n, '*/'", "SELECT '/*'     \n, '*/'"),
    ("SELECT r'\\' -- a", "SELECT r'\\'     "),
]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_comment_stays(text: str) -> None:
    assert without_comments(text) == text


@pytest.mark.parametrize(("text", "left"), SOME)
def test_comments_are_blanks(text: str, left: str) -> None:
    assert without_comments(text) == left


def test_a_comment_without_an_end_stays() -> None:
    assert without_comments("SELECT 1 -- a\n/* b /* c */") == "SELECT 1     \n/* b /* c */"


def test_all_that_reads_a_text_knows_of_them() -> None:
    tree = parse_statement("SELECT a FROM t -- x\\\n WHERE a = 1")
    assert tree.args.get("where") is None
    assert split_statements("SELECT 1 -- a \\\n ; b\n; SELECT 2") == ["SELECT 1", "SELECT 2"]


@pytest.mark.spark
@pytest.mark.parametrize("text", [*NONE[:3], *(text for text, _ in SOME if " t" not in text)])
def test_spark_reads_the_same(text: str, request: pytest.FixtureRequest) -> None:
    parser = request.getfixturevalue("spark")._jsparkSession.sessionState().sqlParser()
    assert str(parser.parsePlan(text)) == str(parser.parsePlan(without_comments(text)))
