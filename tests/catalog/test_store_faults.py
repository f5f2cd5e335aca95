"""A store that refuses a file, and a network that loses an answer: never damage, and nothing is lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage import filesystem, store_errors
from layoutopt.catalog.storage.footers import DecodedFooters
from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, FAILED
from layoutopt.errors import StoreError, decode_error, encode_error
from layoutopt.scan.table import open_table
from tests.catalog.storage.faulty_store import ANSWERS, FAULTS, LEFT, ROWS, TRANSIENT, Fault, FaultyStore, store, table
from tests.effort import long_too
from tests.scan.tables import expected, same

__all__ = ["store", "table"]

SQL = "SELECT id, kind, price FROM t WHERE kind = 'air'"

# The requests for each kind of file; a data file's first one is for its footer.
READS = {
    "snapshot": Fault("", r"GET \S+/snapshots/1\.json"),
    "plan": Fault("", r"GET \S+/plans/"),
    "manifest": Fault("", r"GET \S+/manifests/"),
    "blocks": Fault("", r"GET \S+/blocks/"),
    "index": Fault("", r"GET \S+/indexes/"),
    "deletes": Fault("", r"GET \S+/deletes/"),
    "footer": Fault("", r"GET \S+/data/1995/"),
    "pages": Fault("", r"GET \S+/data/1995/", skipped=1),
    "marker": Fault("", r"(?:GET|HEAD) \S+/_layoutopt/table\.json"),
    "listing": Fault("", r"GET \S+\?.*list-type"),
}
WRITES = {
    "marker": r"PUT \S+/table\.json",
    "data": r"PUT \S+/data/",
    "blocks": r"PUT \S+/blocks/",
    "index": r"PUT \S+/indexes/",
    "manifest": r"PUT \S+/manifests/",
    "snapshot": r"PUT \S+/snapshots/",
}


READ_FAULTS = [kind for kind in FAULTS if kind != "unanswered"]


def pair_up(files: Iterable[str], kinds: Sequence[str]) -> list[Any]:
    """Every pair; in short runs every other file, with the next kind only."""
    short = [(file, kinds[i % len(kinds)]) for i, file in enumerate(files)][::2]
    return [*short, *long_too(*(pair for pair in product(files, kinds) if pair not in short))]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests at once, and as often on a slow machine."""
    monkeypatch.setattr(store_errors, "_FIRST_WAIT", 0)
    monkeypatch.setattr(store_errors, "_PATIENCE", 1000)


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the next step read every file again."""

    def forget_files() -> None:
        monkeypatch.setattr(filesystem, "_FOOTERS", DecodedFooters())
        monkeypatch.setattr(filesystem, "_CONTENTS", LastUsed(1 << 20))

    return forget_files


def check_refused(text: str, kind: str) -> None:
    """One sentence that names the file, and the store's code where it gave one."""
    assert text.count("\n") == 1, text
    assert "damage" not in text
    assert "s3://faulty/" in text
    assert "refused" in text
    if kind in ANSWERS:
        assert str(ANSWERS[kind][0]) in text


@pytest.mark.parametrize(("file", "kind"), pair_up(READS, READ_FAULTS))
def test_a_read_of_each_kind_of_file(
    store: FaultyStore, table: str, file: str, kind: str, capsys: pytest.CaptureFixture[str],
    forget: Callable[[], None],
) -> None:  # fmt: skip
    pattern, skipped = READS[file].pattern, READS[file].skipped
    for words in (["query", table, SQL], ["verify", table]):
        forget()
        with store.fail(Fault(kind, pattern, skipped=skipped)):
            assert main(words) == FAILED
            assert store.hits >= (store_errors._MOST_ATTEMPTS if kind in TRANSIENT else 1)
        check_refused(capsys.readouterr().err, kind)
    forget()
    with store.fail(Fault(kind, pattern, 2 if kind in TRANSIENT else 0, skipped)):
        assert same(open_table(table).sql(SQL).to_pylist(), expected(SQL, LEFT))
        assert store.hits == (2 if kind in TRANSIENT else 0)


@pytest.mark.parametrize(("file", "kind"), pair_up(WRITES, FAULTS))
def test_a_write_of_each_kind_of_file(
    store: FaultyStore, tmp_path: Path, file: str, kind: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, table: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("layoutopt.catalog.manifest_writing.MOST_BOUNDS", -1)
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    plan = tmp_path / "plan.json"
    plan.write_bytes(next(iter(open_table(table).catalog.plans.values())).dumps())
    url = f"s3://faulty/{tmp_path.name}"
    load = ["load", str(tmp_path / "rows.parquet"), url, "--plan", str(plan), "--executor", "local"]
    with store.fail(Fault(kind, WRITES[file])):
        code, error = main(load), capsys.readouterr().err
        assert store.hits
    if kind in ("cut", "unanswered") and code == DONE:  # the file is there
        assert same(open_table(url).sql(SQL).to_pylist(), expected(SQL, ROWS))
        return
    assert code == FAILED
    check_refused(error, kind)
    assert main(load) == DONE
    assert same(open_table(url).sql(SQL).to_pylist(), expected(SQL, ROWS))
    assert main(["verify", url]) == DONE


def test_the_error_survives_processes() -> None:
    error = StoreError("the store refused 'x'", "x", 503, "SlowDown")
    copy = pickle.loads(pickle.dumps(error))
    decoded = decode_error(str(encode_error(error)))
    assert isinstance(decoded, StoreError)
    for other in (copy, decoded):
        assert (str(other), other.path, other.status, other.code) == (str(error), "x", 503, "SlowDown")


def test_a_process_without_credentials_is_told_what_it_lacks() -> None:
    kind = type("NoCredentialsError", (Exception,), {})  # of botocore, which has no root in common with others
    error = store_errors.make_store_error("s3://lake/f", kind("Unable to locate credentials"))
    assert str(error) == (
        "the store refused 's3://lake/f' (NoCredentialsError: Unable to locate credentials); give credentials to each "
        "process that uses the store, to Spark's workers too"
    )
