"""How Sphinx builds the pages of this folder; run it by `./dev docs`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from sphinx.application import Sphinx  # noqa: E402
from sphinx.pycode import ModuleAnalyzer  # noqa: E402

import jrs  # noqa: E402

project = "jrs"
author = "the authors of jrs"
copyright = author
release = version = jrs.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_line",
    "transitions",
]
html_theme = "furo"
html_title = f"jrs {release}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3

default_role = "literal"
"""Docstrings mark code by single backticks."""
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "member-order": "bysource",
}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
smartquotes = False
"""Options begin with two hyphens."""


def _keep_colons(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from taking what is in front of an attribute's colon for its type: it looks
    in the first line, which is an empty comment from here on."""
    if what in ("attribute", "property") and lines:
        lines[:0] = ["..", ""]


def _shorten_defaults(
    app: object, what: str, name: str, obj: object, options: object, text: str | None, end: str
) -> tuple[str | None, str]:
    """Show a default that is made for each value as `…`."""
    return text and text.replace("NOTHING", "…"), end


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
    app.connect("autodoc-process-signature", _shorten_defaults)


def _find_docstrings_of_attributes() -> None:
    """Have autodoc find the docstrings of attributes in the rooms that the public names come from:
    it reads the source of the module that a class names as its own, which is `jrs`."""
    face = ModuleAnalyzer.for_module("jrs")
    face.analyze()
    stub = ast.parse(Path(jrs.__file__).with_suffix(".pyi").read_text())
    for node in stub.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        source = ModuleAnalyzer.for_module(f"jrs.{node.module}")
        source.analyze()
        face.attr_docs.update(source.attr_docs)
        face.tagorder.update(source.tagorder)


_find_docstrings_of_attributes()
