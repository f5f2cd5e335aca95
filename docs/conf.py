"""How Sphinx builds the documentation. The source folder is the repository, so that links between its texts hold."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

project = "layoutopt"
author = "the maintainers of layoutopt"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "data/README.md",
    "docs/**",
    "layoutopt/catalog/SPEC.md",
    "layoutopt/scan/REASONS.md",
]
exclude_patterns = ["build", ".venv", "docs/api/modules.rst"]

# A page for each package, made from its docstrings by each build.
apidoc_modules = [
    {
        "path": "../layoutopt",  # from here; the pages go below the source folder
        "destination": "docs/api",
        "max_depth": 1,
        "module_first": True,
        # What a package's face hands on is described where it is made, once.
        "automodule_options": {"members", "show-inheritance", "ignore-module-all"},
    }
]
autodoc_typehints = "signature"
autodoc_default_options = {"exclude-members": "UNESCAPED_SEQUENCES"}  # sqlglot's, which every dialect gets
# A type called `bytes` may be an attribute of ours by name, and an error is described where it is made and handed on.
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are in their class's docstring already

myst_heading_anchors = 3
smartquotes = False  # flags begin with two dashes
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = f"layoutopt {release}"
templates_path = ["_templates"]
html_additional_pages = {"index": "first_page.html"}  # the site's root leads to docs/index
