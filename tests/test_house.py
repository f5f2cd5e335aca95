"""The house's own promises: what the texts say exists, and what is pinned is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")
]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = dict(line.split("==") for line in CONSTRAINTS)
SOURCES = sorted((ROOT / "layoutopt").rglob("*.py"))
LINE_LIMIT = 500  # a module over about 300 lines wants a second look; above this it is refused

# The verbs of the command line, and the make targets, that others rely on.
VERBS = [
    "analyze", "plan", "load", "reload", "status", "drift", "query", "explain", "evaluate", "verify", "files",
    "history", "restore", "vacuum", "bench",
]  # fmt: skip
TARGETS = ["help", "install", "demo", "tpch", "bench", "test", "test-long", "lint", "clean"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[str]:
    # Airflow has constraints of its own, and an environment of its own: it pins half of PyPI.
    extras = [lines for name, lines in PYPROJECT["project"]["optional-dependencies"].items() if name != "airflow"]
    lines = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return [normal(re.split(r"[<>=!~\[; ]", line)[0]) for line in lines]


def commands(text: str) -> list[str]:
    """Every line of the shell blocks of a Markdown text."""
    return [
        line for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]


def test_every_constraint_is_one_exact_version() -> None:
    for line in CONSTRAINTS:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.+!]+", line), line


def test_constraints_cover_every_requirement() -> None:
    assert set(requirements()) <= {normal(name) for name in PINNED}


def test_the_installed_versions_are_the_pinned_ones() -> None:
    for name in requirements():
        pin = next(pinned for pinned_name, pinned in PINNED.items() if normal(pinned_name) == name)
        try:
            assert version(name) == pin
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("target", TARGETS)
def test_make_help_lists_the_target(target: str) -> None:
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  make {target} +\S", said, re.MULTILINE)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in ("help", "install", "clean")])
def test_every_working_target_installs_first(target: str) -> None:
    assert re.search(rf"^{target}: install\b", MAKEFILE, re.MULTILINE)


def test_readme_begins_with_make_demo_and_make_test() -> None:
    assert commands(README)[:2] == ["make demo", "make test"]


def test_the_commands_of_the_readme_exist() -> None:
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(commands(README))):
        assert target in TARGETS
    for verb in re.findall(r"^layoutopt ([a-z]+)", "\n".join(commands(README)), re.MULTILINE):
        assert verb in VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_readme_documents_every_verb(verb: str) -> None:
    assert re.search(rf"`layoutopt {verb}\b", README), f"README's command table lacks {verb}"


def test_the_files_that_readme_and_architecture_link_to_exist() -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / link).exists(), f"{name} links to {link}"


def test_ci_runs_lint_and_the_demo_and_ends_with_the_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make lint", "make demo", "make test"]
    assert lines[-1] == "make test"


def test_the_version_is_said_once() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        r"^## \[(Unreleased|" + re.escape(PYPROJECT["project"]["version"]) + r")\]", changelog, re.MULTILINE
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_a_docstring_and_is_of_readable_length(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINE_LIMIT
    assert ast.get_docstring(ast.parse(text)), "a module says what it is for"


def test_there_is_no_utils_module() -> None:
    assert not [path for path in SOURCES if path.stem in ("utils", "util", "helpers", "misc", "common")]


def test_nothing_imports_the_jobs() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("jobs"), path
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("jobs") for alias in node.names), path
