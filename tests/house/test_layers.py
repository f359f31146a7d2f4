"""The rooms of the house: a room imports only from lower floors, and no modules form a circle.

Every import counts: those inside of functions, and those for the type checker alone. So does a
module that is named by a text, for ``python -m``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]

FLOORS = [
    ["jrs.contract"],
    ["jrs.host"],
    ["jrs.records"],
    ["jrs.backends.shared", "jrs.backends.remote"],
    ["jrs.backends.zookeeper.protocol", "jrs.backends.file.format"],
    ["jrs.backends.file.base"],
    ["jrs.backends.file.segments"],
    ["jrs.backends.etcd", "jrs.backends.file", "jrs.backends.memory", "jrs.backends.zookeeper"],
    ["jrs.store"],
    ["jrs.recovery.storage"],
    ["jrs.recovery.rules", "jrs.recovery.files", "jrs.recovery.processes"],
    ["jrs.recovery.checkpoint_format"],
    ["jrs.recovery.snapshots"],
    ["jrs.recovery.cleanup"],
    ["jrs.recovery.attempt"],
    ["jrs.recovery.inspect", "jrs.recovery.health"],
    ["jrs.recovery.spark", "jrs.recovery.leader"],
    ["jrs.recovery.attempt_main", "jrs.recovery.run_hook", "jrs.recovery.snapshot_catalog"],
    ["jrs.recovery.master"],
    ["jrs.recovery.leading_replica", "jrs.recovery.standby_replica"],
    ["jrs.recovery.driver_calls"],
    ["jrs.recovery.application"],
    ["jrs.client"],
    ["jrs"],
    ["jrs.sidecar"],
    ["jrs.testing"],
    ["jrs.demo"],
    ["jrs.cli"],
    ["jrs.__main__"],
]
"""Lowest first. Rooms of one floor do not import each other."""

HEAVY = {
    ("jrs.recovery.spark.engine", "jrs.recovery.spark.streams"): "it imports pyspark",
    ("jrs.recovery.spark.data_format", "jrs.recovery.spark.by_value"): "it imports pyspark",
    ("jrs.recovery.spark.data_format", "jrs.recovery.spark.sink"): "it imports pyspark",
    ("jrs.recovery.spark.source", "jrs.recovery.inspect.output_files"): "executors lack jrs",
    ("jrs.recovery.spark.history_stream", "jrs.contract.errors"): "executors lack jrs",
    ("jrs.recovery.spark.history_stream", "jrs.recovery.inspect.history"): "executors lack jrs",
    ("jrs.recovery.spark.history_stream", "jrs.store.feed"): "executors lack jrs",
    ("jrs.recovery.spark.table_source", "jrs.recovery.inspect.tables"): "executors lack jrs",
    ("jrs.recovery.spark.table_source", "jrs.recovery.inspect.table_jobs"): "executors lack jrs",
    ("jrs.recovery.spark.table_source", "jrs.store.opening"): "executors lack jrs",
    ("jrs.recovery.spark.doctor", "jrs.recovery.spark.probes"): "it imports pyspark",
    ("jrs.recovery.leader.orphans", "jrs.recovery.processes.left_on_cluster"): "a client of HTTP",
    ("jrs.recovery.master", "jrs.recovery.leader.lineage_export"): "few masters export",
    ("jrs.recovery.master", "jrs.recovery.leader.openlineage"): "it imports OpenLineage, an extra",
    ("jrs.__main__", "jrs.cli"): "an interrupt may come while it loads",
    ("jrs.cli.demo", "jrs.demo"): "it imports pyspark",
    ("jrs.cli.serve", "jrs.sidecar.serving"): "it imports starlette, which is an extra",
    ("jrs.demo", "jrs.demo.story"): "it imports pyspark",
    ("jrs.testing.chaos.plugin", "jrs.store.opening"): "every pytest loads the plugin",
    ("jrs.testing.chaos.plugin", "jrs.store.result_store"): "every pytest loads the plugin",
    ("jrs.testing.chaos.plugin", "jrs.testing.chaos.world"): "every pytest loads the plugin",
    ("jrs.testing.chaos.plugin", "jrs.testing.masters"): "every pytest loads the plugin",
    ("jrs.testing.chaos.plugin", "jrs.testing.servers"): "every pytest loads the plugin",
    ("jrs.testing.chaos.plugin", "jrs.testing.servers.fixtures"): "every pytest loads the plugin",
    ("jrs.demo", "jrs.demo.streaming_story"): "it imports pyspark",
    ("jrs.testing.servers.certificates", "jrs.testing.servers.signing"): "it imports cryptography",
}
"""The imports of our own inside of functions, and what makes them heavy."""

PROTOCOL = (
    "jrs.contract.clock",
    "jrs.contract.errors",
    "jrs.contract.runtime",
    "jrs.backends.remote",
)
"""All that the client of ZooKeeper's protocol may know of jrs."""


LONGEST = 400
"""Lines of a module that needs no reason in CONTRIBUTING.md."""

LONGEST_FUNCTION = 55
"""Lines of a function, without its docstring, that needs no reason."""
LONG = {
    "jrs.backends.file.state_machine._apply": "the hot path of the replay: a call for each "
    "operation would cost as much as the operation",
    "jrs.recovery.health.metrics.metrics": "a list of metrics, one after the other",
    "jrs.recovery.master.__init__": "half of it are its parameters",
}
"""Functions that are longer, and why."""


@attrs.frozen
class Import:
    """One import of a module of ours by another."""

    importer: str
    imported: str
    lazy: bool
    """Whether it is inside of a function."""
    absolute: bool


def modules() -> dict[str, Path]:
    """Return every module by its name, found in the real folders and not through the links."""
    found = {}
    for top in ("jrs", "backends", "recovery"):
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] in (("jrs", "backends"), ("jrs", "recovery")):
                continue
            name = ".".join(parts if top == "jrs" else ("jrs", *parts))
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(importer: str) -> Iterator[Import]:
    """Yield what a module imports of ours."""
    path = MODULES[importer]
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = lazy or isinstance(child, (ast.FunctionDef, ast.Lambda))
            names = []
            if isinstance(child, ast.Import):
                names = [(alias.name, True) for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                parts = package.split(".")
                above = parts[: len(parts) - child.level + 1] if child.level else []
                start = ".".join([*above, *([child.module] if child.module else [])])
                names = [(f"{start}.{alias.name}", not child.level) for alias in child.names]
            for name, absolute in names:
                if name.split(".")[0] == "jrs":
                    yield Import(importer, module_of(name), lazy, absolute)
            yield from walk(child, inside)

    return walk(ast.parse(path.read_text()), False)


def module_of(name: str) -> str:
    """Return the module that a dotted name is, or is in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


IMPORTS = [one for name in sorted(MODULES) for one in imports(name)]


def named_by_texts(module: str) -> Iterator[str]:
    """Yield the other modules of ours whose names stand in a module as texts."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            # A package is no program; loggers and entry points have the names of packages.
            if name != module and name in MODULES and MODULES[name].stem != "__init__":
                yield name


def room_of(module: str) -> str:
    """Return the room of a module: the longest name of a room that its own begins with."""
    rooms = [room for floor in FLOORS for room in floor]
    inside = [room for room in rooms if module == room or module.startswith(f"{room}.")]
    return max(inside, key=len)


def floor_of(room: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if room in floor)


def is_package_of_rooms(module: str) -> bool:
    """Return whether a module only holds rooms: such a one says nothing but what they are."""
    return module in ("jrs.backends", "jrs.recovery")


def test_arrows_point_down() -> None:
    """A room imports only from lower floors."""
    arrows = [(one.importer, one.imported) for one in IMPORTS]
    arrows += [(module, named) for module in MODULES for named in named_by_texts(module)]
    up = [
        f"{source} -> {target}"
        for source, target in arrows
        if (mine := room_of(source)) != (other := room_of(target))
        and floor_of(other) >= floor_of(mine)
    ]
    assert not up


def test_recovery_knows_no_backend() -> None:
    """What recovers jobs knows the contract, and none of those that keep it."""
    known = [
        f"{one.importer} -> {one.imported}"
        for one in IMPORTS
        if one.importer.startswith(("jrs.recovery", "jrs.store"))
        and one.imported.startswith("jrs.backends")
    ]
    assert not known


def test_no_circles() -> None:
    """No module imports itself by way of others."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for one in IMPORTS:
        if one.imported != one.importer:
            graph[one.importer].add(one.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


def test_every_room_exists() -> None:
    """The list above names no room that is gone, and every module is in one of the rooms."""
    assert [room for floor in FLOORS for room in floor if room not in MODULES] == []
    homeless = [
        name for name in MODULES if room_of(name) == "jrs" and not is_package_of_rooms(name)
    ]
    assert homeless == ["jrs"]


def test_lazy_imports_are_heavy_ones() -> None:
    """Only what is heavy is imported when it is first needed."""
    assert {(one.importer, one.imported) for one in IMPORTS if one.lazy} == set(HEAVY)


def test_imports_within_a_folder_are_relative() -> None:
    """Tools that do not follow the links `jrs/backends` and `jrs/recovery` see every import."""
    unseen = [
        f"{one.importer} -> {one.imported}"
        for one in IMPORTS
        for folder in ("jrs.backends", "jrs.recovery")
        if one.importer.startswith(folder) and one.imported.startswith(folder) and one.absolute
    ]
    assert not unseen


def test_no_module_is_long() -> None:
    """A stranger reads a module in one go."""
    paths = {str(path.relative_to(ROOT)): path for path in MODULES.values()}
    assert [name for name, path in paths.items()
            if len(path.read_text().splitlines()) > LONGEST] == []  # fmt: skip


def test_no_function_is_long() -> None:
    """What a function does fits on a screen; each exception has a reason, and is one."""
    found = {
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and lines_of(node) > LONGEST_FUNCTION
    }
    assert found == set(LONG)


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function, without its docstring and its decorators."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    said, first = ast.get_docstring(function, clean=False), function.body[0]
    return lines if said is None else lines - (first.end_lineno or 0) + first.lineno - 1


def test_the_client_of_zookeeper_knows_nothing_of_jrs() -> None:
    """Its protocol could be a package of its own."""
    known = [
        f"{one.importer} -> {one.imported}"
        for one in IMPORTS
        if room_of(one.importer) == "jrs.backends.zookeeper.protocol"
        and room_of(one.imported) != "jrs.backends.zookeeper.protocol"
        and not one.imported.startswith(PROTOCOL)
    ]
    assert not known


def test_a_lower_floor_is_never_above() -> None:
    """The test of the arrows can fail: it sees one that points up."""
    assert floor_of(room_of("jrs.recovery.spark.streams")) > floor_of(room_of("jrs.store.jobs"))
    assert room_of("jrs.backends.zookeeper.protocol.codec") == "jrs.backends.zookeeper.protocol"
    assert room_of("jrs.backends.zookeeper.plan") == "jrs.backends.zookeeper"
