"""A function, and the making of an object, takes few parameters: what travels together is one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.test_layers import MODULES

MOST = 12
"""Parameters that need no reason."""

STORED = "Stored"
"""The base of records. Their fields are what the backend holds, by their names: to group them would
change the stored form."""

OPTIONS = "click passes each option of a command"
PUBLIC = "its keywords are public: callers would break"
CONTEXT = "it is the one value that others take instead of so many parameters"
MANY = {
    "jrs.cli.jobs.submit_command": OPTIONS,
    "jrs.cli.master.master_command": OPTIONS,
    "jrs.cli.retry.retry_command": OPTIONS,
    "jrs.client.client.Client.submit": PUBLIC,
    "jrs.recovery.application.run": PUBLIC,
    "jrs.recovery.master.Master.__init__": PUBLIC,
    "jrs.recovery.inspect.history.HistoryEntry": "callers read its fields; jrs alone makes it",
    "jrs.recovery.attempt.context.AttemptContext": CONTEXT,
    "jrs.recovery.leader.context.LeaderContext": CONTEXT,
    "jrs.recovery.attempt.launch.Launch": "a message to a process whose Python may have another "
    "jrs: its fields are the message's",
    "jrs.testing.chaos.checking.columns.Columns": "a table; each field is a column",
}
"""What takes more, and why."""


def counts(module: str, source: str) -> Iterator[tuple[str, int]]:
    """Yield the functions and the classes of a module whose `__init__` attrs writes, and how many
    parameters each takes."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from walk(child, name)
                continue
            inner = f"{name}.{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield inner, parameters(child)
            elif any(is_attrs(one) for one in child.decorator_list) and not is_stored(child):
                yield inner, sum(map(is_parameter, child.body))
            yield from walk(child, inner)

    return walk(ast.parse(source), module)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many parameters a function takes, besides the object or class that it is of."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def is_attrs(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith(("attrs.", "attr."))


def is_stored(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == STORED for base in node.bases)


def is_parameter(statement: ast.stmt) -> bool:
    """Return whether a statement of a class is a field that its `__init__` takes."""
    if not isinstance(statement, ast.AnnAssign) or "ClassVar" in ast.unparse(statement.annotation):
        return False
    return not (
        isinstance(statement.value, ast.Call)
        and any(
            keyword.arg == "init" and ast.unparse(keyword.value) == "False"
            for keyword in statement.value.keywords
        )
    )


def test_few_parameters() -> None:
    """Each exception has a reason, and is one."""
    found = {
        name
        for module, path in MODULES.items()
        for name, count in counts(module, path.read_text(encoding="utf-8"))
        if count > MOST
    }
    assert found == set(MANY)


def test_parameters_are_counted() -> None:
    """The test above can fail: it counts keywords and fields, and leaves out what is not passed."""
    source = """
def f(a, /, b, *, c=1): ...

@attrs.define(eq=False)
class Query:
    run: int
    step: int = 0
    _began: float = attrs.field(init=False)
    KINDS: ClassVar[int] = 0

    def look(self, *, draining): ...

@attrs.frozen
class Record(Stored):
    job_id: str
"""
    assert dict(counts("m", source)) == {"m.f": 3, "m.Query": 2, "m.Query.look": 1}
