"""The pages of the documentation: their commands parse, and generated ones are those that would be generated."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.commands import CODE_PAGES, PAGE, commands_page, with_exit_codes
from layoutopt import errors
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED, INTERRUPTED
from layoutopt.config.files import VERBS, read_values
from layoutopt.errors import LayoutoptError
from tests.docs.pages import GUIDES, PAGES, README, ROOT, Block, blocks_of, commands, parse_command, parse_job

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
BLOCKS = [(page, block) for page in PAGES for block in blocks_of(page)]
# The pages whose sentences name commands; the changelog names those of its time.
PROSE = (*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")),
         *sorted((ROOT / "docs/decisions").glob("*.md")), ROOT / "layoutopt/scan/REASONS.md")  # fmt: skip
# Flags of other programs.
OTHER_FLAGS = ("--py-files", "--folder", "--sf")  # of spark-submit, and of the experiments
# What a shell block may have besides the project's own commands.
OTHER_COMMANDS = ("export", "mkdir", "python3", ".")


def named(value: object) -> str:
    return value.stem if isinstance(value, Path) else ""


def check_line(words: list[str]) -> None:
    if words[0] == "layoutopt":
        parse_command(words)
    elif words[0] == "spark-submit":
        parse_job(words)
    elif words[0] == "make":
        assert words[1] in TARGETS
    elif words[:2] == ["pip", "install"]:
        for extra in re.findall(r"\[(.*?)\]", " ".join(words)):
            assert set(extra.split(",")) <= EXTRAS.keys()
    else:
        assert words[0] in OTHER_COMMANDS, words


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=named)
def test_a_block_is_marked_by_a_known_word_and_its_code_parses(
    page: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()  # the folder of files to write has to be there
    assert block.mark in ("", "parse", "file", "served", "run", "spark session"), block.mark
    assert block.mark != "parse" or block.argument, "say why the block does not run"
    if block.language == "sh":
        for words in block.lines:
            check_line(words)
    elif block.language == "python":
        compile(block.code, str(page), "exec")
    elif block.language == "toml":
        (tmp_path / "conf.toml").write_text(block.code, encoding="utf-8")
        for name in tomllib.loads(block.code).keys() & VERBS.keys():
            assert read_values(tmp_path / "conf.toml", VERBS[name])
    else:
        assert block.language in ("text", "mermaid") or block.code.startswith(":")


def spans(page: Path) -> list[str]:
    """Return the code within a page's sentences."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_within_sentences_exist(page: Path) -> None:
    """`layoutopt VERB ...`, `VERB --flag ...` and `--flag ...`."""
    flags = {
        name: {"--help"}
        | {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in commands().items()
    }
    for span in spans(page):
        words = span.split()
        if words[0] == "layoutopt" and len(words) > 1:
            words = words[1:]
            assert words[0] in flags or words[0].isupper() or words[0].startswith("--"), span
        verb = words.pop(0) if words[0] in flags else None
        if verb is None and not words[0].startswith("--"):
            continue
        known = flags[verb] if verb else {*OTHER_FLAGS, *(flag for names in flags.values() for flag in names)}
        assert not [word for word in words if word.startswith("--") and word.rstrip(",") not in known], span


def test_the_page_of_commands_is_generated_from_the_settings() -> None:
    assert PAGE.read_text(encoding="utf-8") == commands_page(), "run `make readme`"


@pytest.mark.parametrize("page", CODE_PAGES, ids=named)
def test_the_tables_of_exit_codes_are_generated_from_the_errors(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == with_exit_codes(text), "run `make readme`"


def test_every_exit_code_is_explained() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LayoutoptError)]
    assert {kind.exit_code for kind in kinds} | {DONE, FAILED, BAD_USAGE, INTERRUPTED} == errors.EXIT_CODES.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_of_commands_documents_every_verb_and_setting(verb: str) -> None:
    (section,) = re.findall(
        rf"^## layoutopt {verb}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|", section, re.MULTILINE)
    assert len(rows) == len(VERBS[verb].model_fields)
    assert all(meaning for _, meaning in rows)
    assert f"Example: `layoutopt {verb} " in section


def test_the_page_of_errors_has_every_class_with_its_exit_code() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (·*) ?`(\w+)` \| (\d) \|", page, re.MULTILINE)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LayoutoptError)]
    depths = {kind.__name__: len(kind.__mro__) - len(LayoutoptError.__mro__) for kind in kinds}
    assert {name: (len(dots), int(code)) for dots, name, code in rows} == {
        kind.__name__: (depths[kind.__name__], kind.exit_code) for kind in kinds
    }


def test_the_guide_of_methods_has_them_all() -> None:
    page = (ROOT / "docs" / "guides" / "choosing.md").read_text(encoding="utf-8")
    table = page.partition("## Methods")[2].partition("\n\nUse one")[0]
    names = re.findall(
        r"`([a-z][a-z-]*)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    )
    (method,) = [parameter for parameter in commands()["plan"].params if parameter.name == "method"]
    assert sorted(names) == sorted(method.metavar.split("|"))


def test_the_readme_is_short_and_begins_with_the_demo_and_the_tests() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 230
    shell = [words for block in blocks_of(README) if block.language == "sh" for words in block.lines]
    assert shell[:2] == [["make", "demo"], ["make", "test"]]


def test_the_readme_links_to_every_guide() -> None:
    text = README.read_text(encoding="utf-8")
    for guide in GUIDES:
        assert f"(docs/guides/{guide.name})" in text
