"""Requests that nobody should send: each gets an answer of the specification's form, and no file of another table."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.schema import Column, Schema
from layoutopt.serve import planning
from layoutopt.serve.app import Limits
from tests.effort import examples
from tests.scan.builder import build, building
from tests.serve.serving import TOKEN, Served, ask, serving

OTHER = "fedcba9876543210-another"
LIMITS = Limits(body_bytes=20_000, body_seconds=0.5, filter_depth=20)
SCHEMA = Schema((Column("id", "int"), Column("kind", "string"), Column("x", "double")))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, beside which lie a secret table and a secret file."""
    lake = tmp_path_factory.mktemp("hostile") / "lake"
    rows = pa.table(
        {"id": pa.array(range(12), pa.int32()), "kind": list("aabbccddeeff"), "x": [i / 2 for i in range(12)]}
    )
    for root in (lake / "t", lake.parent / "secret"):
        build(root, rows, building(SCHEMA, ["x > 1"], segment_rows=3))
    (lake.parent / "secret.json").write_text("{}", encoding="utf-8")
    return lake


@pytest.fixture(scope="module")
def served(lake: Path) -> Iterator[Served]:
    with serving((), lake, (OTHER, TOKEN), LIMITS) as served:
        yield served


PLAN = "/v1/namespaces/default/tables/t/plan"
TABLE = "/v1/namespaces/default/tables/t"


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/", 404, "NoSuchEndpointException"),
        ("GET", "/v1/namespaces/nowhere", 404, "NoSuchNamespaceException"),
        ("GET", "/v1/namespaces/nowhere/tables", 404, "NoSuchNamespaceException"),
        ("GET", "/v1/namespaces?parent=nowhere", 404, "NoSuchNamespaceException"),
        ("GET", "/v1/namespaces/default/tables/secret", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/..%2Fsecret", 404, "NoSuchEndpointException"),
        ("GET", "/v1/namespaces/default/tables/../../../../secret", 404, "NoSuchEndpointException"),
        ("GET", "/v1/namespaces/..%1Fsecret/tables/t", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/../tables/secret", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/%2e%2e/tables/secret", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/t%00", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/t_layout_0", 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/" + "a" * 5000, 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/" + quote("tä\u202e𝄞"), 404, "NoSuchTableException"),
        ("GET", "/v1/namespaces/default/tables/%FF%FE", 404, "NoSuchTableException"),
        ("GET", "/v1/config/", 404, "NoSuchEndpointException"),
        ("GET", PLAN, 405, "MethodNotAllowedException"),
        ("PUT", TABLE, 405, "MethodNotAllowedException"),
        ("DELETE", PLAN, 405, "MethodNotAllowedException"),
        ("POST", "/v1/config", 405, "MethodNotAllowedException"),
        ("DELETE", TABLE, 406, "UnsupportedOperationException"),
        ("POST", TABLE, 406, "UnsupportedOperationException"),
        ("POST", "/v1/namespaces", 406, "UnsupportedOperationException"),
        ("DELETE", "/v1/namespaces/default", 406, "UnsupportedOperationException"),
        ("POST", "/v1/namespaces/default/properties", 406, "UnsupportedOperationException"),
        ("POST", "/v1/namespaces/default/tables", 406, "UnsupportedOperationException"),
        ("POST", "/v1/namespaces/default/register", 406, "UnsupportedOperationException"),
        ("POST", "/v1/tables/rename", 406, "UnsupportedOperationException"),
        ("POST", "/v1/transactions/commit", 406, "UnsupportedOperationException"),
    ],
)
def test_what_is_not_there_or_would_change_something(
    served: Served, method: str, path: str, status: int, type: str
) -> None:
    answer = ask(served, method, path, b"{}" if method == "POST" else None)
    assert (answer.status, answer.error["type"]) == (status, type)


@pytest.mark.parametrize(("method", "path"), [("HEAD", "/v1/namespaces/nowhere"), ("HEAD", TABLE + "u")])
def test_heads_of_nothing(served: Served, method: str, path: str) -> None:
    assert (ask(served, method, path).status, ask(served, method, path).body) == (404, b"")


@pytest.mark.parametrize(
    "token", [None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN}, Bearer {TOKEN}", "ü" * 30]
)
def test_a_request_bears_a_token(served: Served, token: str | None) -> None:
    for method, path in (("GET", "/v1/config"), ("GET", TABLE), ("POST", PLAN), ("GET", "/nowhere"), ("DELETE", TABLE)):
        answer = ask(served, method, path, token=token)
        assert (answer.status, answer.error["type"]) == (401, "NotAuthorizedException")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_any_of_the_tokens_is_known_and_other_schemes_are_not(served: Served) -> None:
    assert ask(served, "GET", "/v1/config", token=OTHER).status == 200
    assert ask(served, "GET", "/v1/config", token=None, Authorization=f"bearer {TOKEN}").status == 200
    assert ask(served, "GET", "/v1/config", token=None, Authorization=f"Basic {TOKEN}").status == 401
    assert TOKEN not in served.log.getvalue()


def test_without_tokens_only_this_machine_is_answered_under_its_own_name(lake: Path) -> None:
    with serving((), lake) as served:
        for host in ("127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:8181", "[::1]"):
            assert ask(served, "GET", "/v1/config", token=None, Host=host).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example:8181", "evil.example:127.0.0.1", "localhost.", ""):
            answer = ask(served, "GET", "/v1/config", token=None, Host=host)
            assert (answer.status, answer.error["type"]) == (403, "ForbiddenException"), host


DEEP = b'{"filter":' + b'{"type":"not","child":' * 700 + b"true" + b"}" * 701


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xff\xfe", "no JSON"),
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        (DEEP, "nested"),
        (b"[" * 9_000 + b"]" * 9_000, "nested too deep"),
        (b'{"filter":{"type":"eq","term":"id","value":' + b"9" * 5_000 + b"}}", "no JSON"),
        ({"snapshot-id": 0}, "no snapshot id"),
        ({"snapshot-id": -1}, "no snapshot id"),
        ({"snapshot-id": 7}, "there is no snapshot 7"),
        ({"snapshot-id": 2**70}, "no snapshot id"),
        ({"snapshot-id": "1"}, "no snapshot id"),
        ({"snapshot-id": True}, "no snapshot id"),
        ({"case-sensitive": "yes"}, "send true or false"),
        ({"filter": 5}, "no expression"),
        ({"filter": {"type": "eq", "term": "no", "value": 1}}, "'no', which is no column"),
        ({"filter": {"type": "eq", "term": "\ud800", "value": 1}}, "no column"),
    ],
)
def test_malformed_plans_are_refused(served: Served, body: Any, says: str) -> None:
    answer = ask(served, "POST", PLAN, body)
    assert (answer.status, answer.error["type"]) == (400, "BadRequestException")
    assert says in answer.error["message"]
    assert len(answer.body) < 1000


def test_answers_are_so_large_and_no_larger(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_LARGEST_ANSWER", 1000)
    assert ask(served, "POST", PLAN, {"filter": {"type": "not-null", "term": "id"}}).status == 200
    answer = ask(served, "POST", PLAN, {"filter": {"type": "in", "term": "id", "values": list(range(-99, 99))}})
    assert answer.status == 400
    assert "each of 4 files; shorten its lists" in answer.error["message"]


def test_incremental_scans_are_refused(served: Served) -> None:
    answer = ask(served, "POST", PLAN, {"start-snapshot-id": 1, "end-snapshot-id": 1})
    assert (answer.status, answer.error["type"]) == (406, "UnsupportedOperationException")


def test_bodies_are_so_long_and_no_longer(served: Served) -> None:
    assert ask(served, "POST", PLAN, b" " * 19_998 + b"{}").status == 200
    assert ask(served, "POST", PLAN, b" " * 20_000 + b"{}").error["code"] == 413


def raw(served: Served, text: bytes, patience: float = 5) -> bytes:
    """What comes back when these bytes are sent, and no more."""
    host, port = urlsplit(served.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        connection.sendall(text)
        found = b""
        try:
            while chunk := connection.recv(65536):
                found += chunk
                if b"\r\n\r\n" in found:
                    break
        except OSError:
            pass
        return found


HEAD = f"POST {PLAN} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


def test_bodies_without_a_length_or_with_a_false_one(served: Served) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    assert b" 413 " in raw(served, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 6 + b"0\r\n\r\n")[:20]
    assert b" 413 " in raw(served, HEAD + b"Content-Length: 999999999999\r\n\r\n{}")[:20]
    assert b" 408 " in raw(served, HEAD + b"Content-Length: 100\r\n\r\n{")[:20]
    for odd in (
        b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\n",
    ):
        assert b" 200 " not in raw(served, HEAD + odd, 1)[:20]
    for nonsense in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100_000):
        assert b" 200 " not in raw(served, nonsense, 1)[:20]
    assert ask(served, "POST", PLAN, {}).status == 200


def test_so_many_requests_at_a_time_and_no_more(lake: Path) -> None:
    limits = Limits(body_seconds=20, requests=3)
    with serving((), lake, (TOKEN,), limits) as served:
        host, port = urlsplit(served.url).netloc.split(":")
        waiting = [socket.create_connection((host, int(port))) for _ in range(3)]
        for connection in waiting:
            connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n")
        while (answer := ask(served, "GET", "/v1/config")).status == 200:
            time.sleep(0.01)
        assert (answer.status, answer.error["type"]) == (429, "TooManyRequestsException")
        assert answer.headers["retry-after"] == "1"
        for connection in waiting:
            connection.sendall(b"{}")
            assert b" 200 " in connection.recv(1000)[:20]
            connection.close()
        assert ask(served, "GET", "/v1/config").status == 200


# What looks like a request, and is wrong somewhere: any JSON where the specification wants some other.
WORDS = ["id", "kind", "x", "eq", "é", "", "\ud800"]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from(WORDS), st.text(max_size=8)
)
NAMES = st.sampled_from(["type", "term", "value", "values", "left", "right", "child", "filter", "transform"])
KINDS = st.sampled_from([
    "eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq", "in", "not-in", "is-null", "not-null", "is-nan", "not-nan", "and",
    "or", "not", "starts-with", "not-starts-with", "true", "false", "reference", "literal", "transform", "what",
])  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)


def likely(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Expressions that have what they need, of whatever kind it is."""
    terms = st.one_of(st.sampled_from(["id", "kind", "x"]), inner)
    return st.one_of(
        st.fixed_dictionaries({"type": KINDS, "term": terms, "value": inner, "values": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"type": KINDS, "left": inner, "right": inner, "child": inner}),
    )


EXPRESSIONS = st.recursive(LEAVES, likely, max_leaves=6)
REQUESTS = st.one_of(
    st.fixed_dictionaries(
        {"filter": st.one_of(EXPRESSIONS, JSON)},
        optional={
            "snapshot-id": LEAVES, "case-sensitive": LEAVES, "select": JSON, "use-snapshot-schema": JSON,
            "stats-fields": JSON, "min-rows-requested": JSON, "what": JSON,
        },
    ),
    JSON,
)  # fmt: skip


@settings(max_examples=examples(600))
@given(request=REQUESTS)
def test_generated_requests_are_answered_or_refused(served: Served, lake: Path, request: Any) -> None:
    """Never a failure of the server's, and never a file that is none of the table's."""
    answer = ask(served, "POST", PLAN, json.dumps(request).encode())
    assert answer.status in (200, 400)
    if answer.status == 400:
        assert answer.error["type"] == "BadRequestException"
        return
    found = json.loads(answer.body)
    assert found["status"] == "completed"
    known = {str(path) for path in (lake / "t/data").rglob("*.parquet")}
    assert {task["data-file"]["file-path"] for task in found["file-scan-tasks"]} <= known


METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
PIECES = st.one_of(
    st.sampled_from(
        ["v1", "namespaces", "default", "tables", "t", "plan", "config", "..", ".", "", "secret", "%2e%2e", "%00"]
    ),
    st.text(max_size=6).map(lambda text: quote(text.encode("utf-8", "surrogatepass"), safe="")),
)


@settings(max_examples=examples(400))
@given(
    method=METHODS,
    pieces=st.lists(PIECES, max_size=8),
    query=st.sampled_from(["", "?parent=%1F", "?parent=..", "?x=%FF"]),
)
def test_generated_paths_are_answered_or_refused(served: Served, method: str, pieces: list[str], query: str) -> None:
    answer = ask(served, method, "/" + "/".join(pieces) + query, b"{}" if method == "POST" else None)
    assert answer.status in (200, 204, 400, 404, 405, 406)
    assert b"secret" not in answer.body or answer.status != 200
    if answer.status >= 400 and method != "HEAD":
        assert answer.error["code"] == answer.status


def test_a_damaged_table_is_said_to_be_damaged_and_others_are_served(lake: Path, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int32()), "kind": ["a"], "x": [1.0]})
    for name in ("good", "bad", "gone"):
        build(tmp_path / name, rows, building(SCHEMA))
    for path in (tmp_path / "bad/_layoutopt/blocks").iterdir():
        path.write_bytes(b"damaged")
    next((tmp_path / "gone/data").rglob("*.parquet")).unlink()
    with serving((), tmp_path) as served:
        for method, what in (("POST", "bad/plan"), ("POST", "gone/plan"), ("GET", "gone")):
            answer = ask(served, method, f"/v1/namespaces/default/tables/{what}", token=None)
            assert (answer.status, answer.error["type"]) == (500, "CatalogError")
        assert ask(served, "POST", "/v1/namespaces/default/tables/good/plan", {}, None).status == 200
        assert [line["error"] for line in served.lines if line["event"] == "failure"] == ["CatalogError"] * 3
