"""The public face: whatever a user may meet in a signature is importable from `jrs`."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import pickle
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import jrs

ROOT = Path(__file__).parents[2]
NAMES = sorted(set(jrs.__all__) - {"__version__"})

STUB = (ROOT / "jrs" / "__init__.pyi").read_text()
HOMES = {
    name: f"jrs.{home}"
    for home, name in re.findall(r"^from \.(\S+) import (\w+) as \2$", STUB, re.MULTILINE)
}
"""The modules that define the public names."""

GIVEN = {
    "Driver",
    "Job",
    "JobHandle",
    "JobSnapshots",
    "Stage",
    "FinishedStage",
    "Stream",
    "StreamStage",
    "RecoverySource",
}
"""Users are given these; how they are constructed is our own affair."""

ALIASES = {"Clock", "Json", "Op", "Progress", "Report"}
"""Names of other types, which know of no module."""

INTERNAL = {
    "Dispatcher": "`Master.run` hands it to application mode, which is ours",
    "MasterHealth": "`jrs master --listen` hands it in, and serves it",
}
"""What is in a public signature and yet is not for users, and why."""


def types_in(annotation: Any) -> Iterator[type]:
    """Yield the types of ours in an annotation."""
    if isinstance(annotation, (list, tuple)):
        for part in annotation:
            yield from types_in(part)
    elif typing.get_origin(annotation) is not None:
        yield from types_in(typing.get_args(annotation))
    elif isinstance(annotation, type) and annotation.__module__.split(".")[0] == "jrs":
        yield annotation


def signatures(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a public name shows: its own annotations, and those of its public methods."""
    found = getattr(jrs, name)
    if attrs.has(found):
        yield name, {field.name: field.type for field in attrs.fields(found)}
    yield from ((where, hints(function)) for where, function in functions(name))


def functions(name: str) -> Iterator[tuple[str, Any]]:
    """Yield a public function, or the public methods of a public class."""
    found = getattr(jrs, name)
    if not isinstance(found, type):
        yield name, found
        return
    for method, value in inspect.getmembers_static(found):
        function: Any = value
        if isinstance(value, (classmethod, staticmethod)):
            function = value.__func__
        elif isinstance(value, property):
            function = value.fget
        made = method == "__init__" and not attrs.has(found) and name not in GIVEN
        if inspect.isfunction(function) and (made or not method.startswith("_")):
            yield f"{name}.{method}", function


def hints(function: Any) -> dict[str, Any]:
    """Return a function's annotations; without those that need pyspark, if it has any."""
    names = dict(function.__globals__)
    for heavy in ("SparkSession", "DataStreamWriter"):
        names.setdefault(heavy, object)
    return typing.get_type_hints(function, names)


def test_every_type_in_a_signature_is_public() -> None:
    """A user can import, from `jrs`, every type that a public signature names."""
    missing = {
        f"{where}: {kind.__module__}.{kind.__qualname__}"
        for name in sorted({*NAMES} - ALIASES)
        for where, annotations in signatures(name)
        for annotation in annotations.values()
        for kind in types_in(annotation)
        if kind.__name__ not in {*NAMES, *INTERNAL}
    }
    assert not missing


def test_every_name_in_a_signature_is_public() -> None:
    """So are the names of other types, which the annotations above no longer show."""
    missing = {
        f"{where}: {word}"
        for name in sorted({*NAMES} - ALIASES)
        for where, module, hint in as_written(name)
        for word in words_in(hint) & ours_in(module)
        if word not in {*NAMES, *INTERNAL}
    }
    assert not missing


def as_written(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield where annotations of a public name are, in which module, and each as it is written."""
    found = getattr(jrs, name)
    fields = found.__annotations__ if attrs.has(found) else {}
    yield from ((name, HOMES[name], hint) for key, hint in fields.items() if key[0] != "_")
    for where, function in functions(name):
        home = function.__globals__["__name__"]
        yield from ((where, home, hint) for hint in function.__annotations__.values())


def words_in(hint: str) -> set[str]:
    """Return the names in an annotation, without the modules in front of them."""
    nodes = [*ast.walk(ast.parse(hint, mode="eval"))]
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


@functools.cache
def ours_in(module: str) -> set[str]:
    """Return the names of types that a module defines, or imports from us."""
    loaded = importlib.import_module(module)
    found = set()
    for node in ast.walk(ast.parse(Path(str(loaded.__file__)).read_text())):
        if isinstance(node, (ast.Assign, ast.ClassDef)) and node.col_offset == 0:
            targets = node.targets if isinstance(node, ast.Assign) else [ast.Name(node.name)]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and (node.level or str(node.module)[:4] == "jrs."):
            found |= {alias.asname or alias.name for alias in node.names}
    return {one for one in found if not isinstance(getattr(loaded, one, None), typing.TypeVar)}


def test_public_names_are_at_home_in_jrs() -> None:
    """Messages and help texts show the name that a user imports."""
    found = {name: getattr(jrs, name) for name in NAMES if name not in ALIASES}

    assert [name for name, one in found.items() if one.__module__ != "jrs"] == []
    assert [n for n, one in found.items() if pickle.loads(pickle.dumps(one)) is not one] == []


def test_every_public_field_is_described() -> None:
    """Below the field, or in the docstring of its class: what it is, and its unit."""
    missing = {
        f"{name}.{field}"
        for name in sorted({*NAMES} - ALIASES)
        if attrs.has(getattr(jrs, name))
        for field in undescribed(class_of(HOMES[name], name))
    }
    assert not missing


def class_of(module: str, name: str) -> ast.ClassDef:
    """Return the source of a class, from the module that defines it."""
    tree = parsed(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    (home,) = (
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}
    )
    package = module.split(".")[: -home.level] if home.level else []
    return class_of(".".join([*package, home.module or ""]), name)


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text())


def undescribed(node: ast.ClassDef) -> Iterator[str]:
    """Yield the public fields of a class of which nothing is said."""
    said = ast.get_docstring(node) or ""
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name = field.target.id
        described = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        in_class = re.search(rf"^ *{name}: |`{name}`", said, re.MULTILINE)
        if not (name.startswith("_") or described or in_class):
            yield name


def test_enums_print_as_their_values() -> None:
    """What a user prints of a job is what the commands print, and what can be compared."""
    found = [getattr(jrs, name) for name in NAMES]
    enums = [one for one in found if isinstance(one, type) and issubclass(one, enum.Enum)]
    assert jrs.JobStatus in enums
    assert [str(member) for one in enums for member in one] == [
        member.value for one in enums for member in one
    ]


def test_every_error_is_public() -> None:
    """Whatever jrs raises on purpose can be caught by its public name."""

    def below(kind: type[Exception]) -> Iterator[type[Exception]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    ours = {kind for kind in below(jrs.JrsError) if kind.__module__.startswith("jrs")}
    raised = {
        kind.__name__
        for kind in ours
        if not kind.__module__.startswith(("jrs.testing", "jrs.backends"))
    }
    assert {name for name in raised if not is_internal(name)} <= set(NAMES)


def test_the_tree_of_errors_is_whole() -> None:
    """`jrs.contract.errors` draws each public error below the one that it is a kind of."""
    public = {name: getattr(jrs, name) for name in NAMES}
    errors = {
        name: one
        for name, one in public.items()
        if isinstance(one, type) and issubclass(one, jrs.JrsError)
    }
    assert drawn(inspect.getdoc(importlib.import_module("jrs.contract.errors")) or "") == {
        name: next((base.__name__ for base in one.__mro__[1:] if base in errors.values()), None)
        for name, one in errors.items()
    }


def drawn(tree: str) -> dict[str, str | None]:
    """Return what a tree draws: each name, and the name above it."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)", tree, re.MULTILINE):
        depth = len(branch) // 4
        parents[name] = above[depth - 1] if depth else None
        above[depth:] = [name]
    return parents


def is_internal(name: str) -> bool:
    """Return whether an error is caught before a user could see it, or is to users the one that it
    derives from."""
    return name in {
        "AllTaken",
        "BadRequest",
        "BeingRestored",
        "Held",
        "NotBegun",
        "Replan",
    } or name.startswith("_")


RUNS = {"demo": "a show", "master": "a master is no client", "prepare": "it works on no cluster"}
"""The commands that a client has no call for, and why."""
COMMANDS = sorted(set((ROOT / "jrs" / "cli").glob("*.py")) - {
    ROOT / "jrs" / "cli" / f"{name}.py" for name in RUNS
})  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_commands_format_what_a_client_returns(path: Path) -> None:
    """What a command finds out, a program gets from a client: a command imports of the rooms behind
    the client only what is public."""
    behind = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("jrs.backends", "jrs.recovery", "jrs.store"))
        for alias in node.names
        if alias.name not in NAMES
    ]
    assert not behind


def test_commands_without_a_client_are_seen() -> None:
    """The test above can fail: `jrs master` imports what is not public."""
    with pytest.raises(AssertionError):
        test_commands_format_what_a_client_returns(ROOT / "jrs" / "cli" / "master.py")


def test_a_reason_is_given_by_name() -> None:
    """Each call of a client that takes a reason takes it in the same way."""
    taken = {
        f"{kind.__name__}.{name}": inspect.signature(call).parameters["reason"].kind
        for kind in (jrs.Client, jrs.JobHandle)
        for name, call in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and "reason" in inspect.signature(call).parameters
    }
    assert {"Client.pause", "JobHandle.cancel", "JobHandle.suspend"} <= taken.keys()
    assert set(taken.values()) == {inspect.Parameter.KEYWORD_ONLY}


OF_A_JOB = {"job_id", "attempt", "epoch", "spark", "check", "stage", "stream", "publish", "log"}


def test_a_job_shows_its_function_nothing_else() -> None:
    """What a function does with its job is all that a job shows; its machinery is elsewhere."""
    assert {name for name in dir(jrs.Job) if not name.startswith("_")} == OF_A_JOB


@pytest.mark.parametrize("name", ["JobCatalog", "JobStops", "SnapshotCatalog"])
def test_old_names_warn(name: str) -> None:
    """A name of the last release still works, and says what to use."""
    with pytest.warns(DeprecationWarning, match=f"jrs.{name} will be removed in 0.3: use "):
        found = getattr(jrs, name)

    assert found.__name__ == name
    assert name not in jrs.__all__
