"""References to keys: what they lead to, and what is said, without the key, where they lead nowhere."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import pytest

from layoutopt.encryption.references import KEY_VARIABLE, check_reference, given_reference, key_of, use_reference
from layoutopt.errors import EncryptionKeyError, SettingError

KEY = bytes(range(40, 72))


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_variable_has_the_key_in_hexadecimal_or_base64(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    for text in (KEY[:length].hex(), KEY[:length].hex().upper(), base64.b64encode(KEY[:length]).decode()):
        monkeypatch.setenv("SOME_KEY", f" {text}\n")
        assert key_of("env:SOME_KEY") == KEY[:length]


def test_a_command_prints_the_key_and_is_run_by_no_shell(tmp_path: Path) -> None:
    program = tmp_path / "print key.py"
    program.write_text(f"import sys; print({KEY.hex()!r} if sys.argv[1:] == ['$HOME;', 'a b'] else '')")
    assert key_of(f"command:{sys.executable} '{program}' '$HOME;' 'a b'") == KEY


@pytest.mark.parametrize("text", ["", "x", "00" * 15, "00" * 33, "g" * 64, "=" * 24])
def test_what_is_no_key_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOME_KEY", text)
    with pytest.raises(EncryptionKeyError, match="SOME_KEY") as told:
        key_of("env:SOME_KEY")
    assert len(text) < 2 or text not in str(told.value)


@pytest.mark.parametrize("reference", ["", "env:", "command: ", "SOME_KEY", "file:key", KEY.hex()])
def test_what_is_no_reference_is_refused_and_not_shown(reference: str) -> None:
    with pytest.raises(SettingError, match=r"write env:NAME") as told:
        check_reference(reference)
    assert len(reference) < 9 or reference not in str(told.value)


@pytest.mark.parametrize("command", ["nobody-has-such-a-program", "false", "unbalanced '"])
def test_a_command_that_fails_is_named(command: str) -> None:
    with pytest.raises(EncryptionKeyError, match=r"command:.* is unavailable"):
        key_of(f"command:{command}")


def test_a_reference_is_given_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "env:OUTER")
    with use_reference("env:INNER"):
        assert given_reference() == "env:INNER"
    with use_reference(None):
        assert given_reference() == "env:OUTER"
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(KeyError), use_reference("env:INNER"):
        raise KeyError
    assert KEY_VARIABLE not in os.environ
