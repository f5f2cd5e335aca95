"""The house's own promises: what the texts say exists, and what is pinned is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")
]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = dict(line.split("==") for line in CONSTRAINTS)
PACKAGE = ROOT / "layoutopt"
SOURCES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in SOURCES})
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DECISIONS = ROOT / "docs" / "decisions"
API = ROOT / "docs" / "api"
MARKDOWN = [
    *ROOT.glob("*.md"),
    *(
        path
        for name in ("docs", "layoutopt", "jobs", "conf", "data", "tests")
        for path in (ROOT / name).rglob("*.md")
        if not path.is_relative_to(API)
    ),
]

# The make targets that users and CI rely on.
TARGETS = [
    "help",
    "install",
    "demo",
    "tpch",
    "bigdata",
    "ablation",
    "readme",
    "check",
    "test",
    "test-long",
    "lint",
    "docs",
    "clean",
]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[str]:
    # Airflow has constraints of its own, and an environment of its own: it pins half of PyPI.
    extras = [lines for name, lines in PYPROJECT["project"]["optional-dependencies"].items() if name != "airflow"]
    lines = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return [normal(re.split(r"[<>=!~\[; ]", line)[0]) for line in lines]


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


def links(path: Path) -> list[str]:
    """The targets of a Markdown text's links and pictures, without those in code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\(<?([^)\s>]+)>?\)", text)


def anchors(path: Path) -> set[str]:
    """What a Markdown text's headings are called in links, as GitHub makes the names."""
    headings = re.findall(r"^#+ +(.+?) *$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path.relative_to(ROOT)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path.relative_to(ROOT)} links to {link}"


@pytest.mark.parametrize(
    "name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/performance.md", "docs/thesis-deviations.md"]
)
def test_the_files_that_a_page_for_developers_names_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[a-z_]+/)+[\w.-]+\.(?:py|md|toml|txt|java))`", text)
    assert not [path for path in paths if not (ROOT / path).exists() and not (PACKAGE / path).exists()]


def drawn_folders(text: str) -> list[str]:
    """The folders in ARCHITECTURE's tree, as paths: four blanks a level."""
    (tree,) = re.findall(r"^```text\n(layoutopt/\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    above: list[str] = []
    folders = []
    for line in tree.splitlines():
        indent, name = re.match(r"( *)(\S+)/(?:\s|$)", line).groups()  # type: ignore[union-attr]
        above[len(indent) // 4 :] = [name]
        folders.append("/".join(above))
    return folders


def libraries_in(tree: ast.AST) -> set[str]:
    """The libraries that code imports when it runs: not for type checkers alone, nor from the standard library."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            found |= libraries_in(node)
    return found - sys.stdlib_module_names - {"layoutopt", "numpy", "pyarrow"}


def test_architecture_names_the_libraries_of_each_folder() -> None:
    """A folder's line has what its modules import, and perhaps what all its subfolders do; theirs have what is left."""
    (tree,) = re.findall(
        r"^```text\n(layoutopt/\n.*?)^```", text_of(ROOT / "ARCHITECTURE.md"), re.MULTILINE | re.DOTALL
    )
    folders = drawn_folders(text_of(ROOT / "ARCHITECTURE.md"))
    named = {
        folder: set(line.partition(" - ")[2].split(", ")) - {""}
        for folder, line in zip(folders, tree.splitlines(), strict=True)
    }
    imports = {
        folder: set().union(*(libraries_in(ast.parse(text_of(path))) for path in (ROOT / folder).glob("*.py")))
        for folder in folders
    }
    for folder in folders:
        above = set().union(*(named[other] for other in folders if folder.startswith(f"{other}/")))
        below = [imports[other] for other in folders if other.startswith(f"{folder}/")]
        shared = named[folder] - imports[folder]
        assert shared <= (set.intersection(*below) if below else set()), folder
        assert named[folder] - shared == imports[folder] - above, folder


def test_tests_mirror_the_package_and_the_folders_beside_it() -> None:
    folders = {test.parent.relative_to(ROOT / "tests") for test in TESTS if test.stem[:5] == "test_"}
    mirrored = [
        folder
        for folder in folders
        if (PACKAGE / folder).is_dir() or (PACKAGE / folder).with_suffix(".py").exists() or (ROOT / folder).is_dir()
    ]
    assert sorted(map(str, folders - set(mirrored))) == ["cluster", "hunt"]


def test_architecture_draws_every_folder_of_the_package_and_no_other() -> None:
    drawn = drawn_folders((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert sorted(drawn) == sorted(str(folder.relative_to(ROOT)) for folder in FOLDERS)


def test_architecture_draws_the_rooms_in_the_order_of_the_contract() -> None:
    drawn = drawn_folders((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    rooms = [folder.partition("/")[2] for folder in drawn if folder.count("/") == 1]
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    contract = [name.strip() for layer in layers for name in layer.split("|")]
    assert rooms == [name for name in contract if (PACKAGE / name).is_dir()]


def test_every_decision_is_short_and_listed() -> None:
    records = sorted(path for path in DECISIONS.glob("*.md") if path.name != "index.md")
    texts = [record.read_text(encoding="utf-8") for record in records]
    numbers = [record.name[:4] for record in records]
    assert len(numbers) == len(set(numbers)) > 0
    for record, text in zip(records, texts, strict=True):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", record.name)
        assert text.startswith(f"# {record.name[:4]}: ")
        assert len(text.split()) <= 200, f"{record.name} has {len(text.split())} words"
    index = (DECISIONS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", index, re.MULTILINE)
    assert listed == [
        (number, record.name, text.splitlines()[0].partition(": ")[2])
        for number, record, text in zip(numbers, records, texts, strict=True)
    ]


def test_ci_ends_with_the_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert targets == ["lint", "demo", "test"]
    assert lines[-1] == "make test"


def test_the_version_is_said_once() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        r"^## \[(Unreleased|" + re.escape(PYPROJECT["project"]["version"]) + r")\]", changelog, re.MULTILINE
    )


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_module_says_what_it_is_for() -> None:
    assert not [path for path in SOURCES if not re.match(r'r?"""\S', text_of(path))]


def imported(path: Path) -> set[str]:
    """The modules that a file imports, and the names that it imports from them as modules may be."""
    found = set()
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_no_test_imports_another() -> None:
    test_files = {".".join(test.relative_to(ROOT).with_suffix("").parts) for test in TESTS if test.stem[:5] == "test_"}
    tests = [path for path in TESTS if path.stem != "same_blocks"]  # a program, which makes the sources of a test
    suspects = [path for path in tests if re.search(r"\.test_|\bimport .*\btest_|^    test_\w+,", text_of(path), re.M)]
    assert not {path: others for path in suspects if (others := imported(path) & test_files)}


def test_there_is_no_utils_module() -> None:
    assert not [path for path in SOURCES if path.stem in ("utils", "util", "helpers", "misc", "common")]


def test_nothing_imports_the_jobs() -> None:
    suspects = [path for path in SOURCES if re.search(r"\bjobs\b", text_of(path))]
    assert not [path for path in suspects if any(name.split(".")[0] == "jobs" for name in imported(path))]
