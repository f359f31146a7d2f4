"""An import inside of a function has its reason next to it.

That is a comment at the end of its line, or right above it and the imports around it. If several
functions of a module share a reason, the module gives it once, above them::

    # Imported inside functions: rich, since most commands do without it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.house.test_layers import MODULES

_SHARED = re.compile(r"^# Imported inside functions: ([^\n]+?),\s+since \S", re.MULTILINE)
_NO_REASON = re.compile(r"#\s*(noqa(: [A-Z0-9]+)?|type: ignore(\[[a-z-]+\])?)?\s*$")


def without_reason(source: str) -> list[str]:
    """Return what is wrong with the imports inside of functions: by the line, or by a name."""
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not _NO_REASON.match(token.string)
    }
    shared = {name.strip(): False for names in _SHARED.findall(source) for name in names.split(",")}
    bare = []
    above = 0
    """The last line of the group that is being read, if it has its reason above it."""
    for node in lazy_imports(ast.parse(source)):
        if node.lineno - 1 in comments or above == node.lineno - 1:
            above = node.end_lineno or node.lineno
        givers = [name for name in shared if is_of(node, name)]
        shared.update(dict.fromkeys(givers, True))
        if not givers and above < node.lineno and node.lineno not in comments:
            bare.append(f"line {node.lineno}")
    return bare + [name for name, used in shared.items() if not used]


def lazy_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports inside of functions, in the order of their lines."""
    found = {
        node.lineno: node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    yield from (found[line] for line in sorted(found))


def is_of(node: ast.Import | ast.ImportFrom, package: str) -> bool:
    """Return whether an import is of a package, or of something in it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = ["." * node.level + (node.module or "")]
    return all(name == package or name.startswith(f"{package}.") for name in names)


@pytest.mark.parametrize("module", MODULES)
def test_a_lazy_import_has_its_reason_next_to_it(module: str) -> None:
    """Each import gives its reason, and each shared reason has imports."""
    assert without_reason(MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("def f():\n    import rich\n", ["line 2"]),
        ("def f():\n    import rich  # noqa: F401\n", ["line 2"]),
        ("def f():\n    import rich  # noqa: F401 - only whether it is there\n", []),
        ("def f():\n    # It takes 0.1 s.\n    import rich\n    import click\n", []),
        ("def f():\n    # It takes 0.1 s.\n    import rich\n    x = 1\n    import y\n", ["line 5"]),
        ("# Imported inside functions: rich, since it is slow.\ndef f():\n    import rich.a\n", []),
        ("# Imported inside functions: rich, since it is slow.\n", ["rich"]),
        ("# Imported inside functions: ..a, since it is slow.\ndef f():\n    import a\n",
         ["line 3", "..a"]),
    ],
)  # fmt: skip
def test_a_reason_that_is_missing_is_seen(source: str, wrong: list[str]) -> None:
    """The test above can fail: it knows an import without a reason, and a reason without one."""
    assert without_reason(source) == wrong
