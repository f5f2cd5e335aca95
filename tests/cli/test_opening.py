"""What a Spark session is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import ensure_table_root
from layoutopt.cli.console import Session
from layoutopt.cli.inputs import start_spark
from layoutopt.errors import EncryptionKeyError


def test_sessions_for_encrypted_tables_encrypt_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []
    monkeypatch.setattr(
        "layoutopt.spark.core.sessions.spark_session", lambda name, debug, own, **_: started.append(own)
    )
    monkeypatch.setattr("layoutopt.spark.core.functions.declare", lambda spark: None)
    monkeypatch.setenv("TABLE_KEY", "7e" * 32)
    monkeypatch.delenv("LAYOUTOPT_KEY", raising=False)
    session = Session(None, json=False, progress=False)
    new, clear, encrypted = (str(tmp_path / name) for name in ("new", "clear", "encrypted"))
    ensure_table_root(TableFiles(clear))
    ensure_table_root(TableFiles(encrypted, key="env:TABLE_KEY"))
    for table in (None, new, clear):
        start_spark(session, table=table)
    start_spark(session, table=encrypted)
    start_spark(session, table=new, encrypt="env:TABLE_KEY")
    assert started == [False, False, False, True, True]
    monkeypatch.setenv("TABLE_KEY", "7f" * 32)
    with pytest.raises(EncryptionKeyError, match="not the one"):
        start_spark(session, table=encrypted)
    with pytest.raises(EncryptionKeyError, match="NOBODYS"):
        start_spark(session, table=new, encrypt="env:NOBODYS")
    assert len(started) == 5, "no session is waited for in vain"
