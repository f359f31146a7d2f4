"""Entry points: from ``module:function`` or ``file.py:function`` to a callable."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.contract.texts import did_you_mean, error_text, shown
from jrs.records.checks import check_entry_point


def load(entry_point: str) -> Callable[..., Any]:
    """Return the function that `entry_point` names.

    Raises:
        CannotStartHere: this host does not have its module, a package of it, or its file; or no
            memory to import it.
        InvalidInput: it has another form, has no such function, is not callable, or raises on
            import.
    """
    place, _, name = check_entry_point(entry_point).rpartition(":")
    importlib.invalidate_caches()  # The module may have arrived since an earlier try.
    outer, _importing.now = importing(), entry_point
    try:
        module = _from_file(place) if place.endswith(".py") else importlib.import_module(place)
    except CannotStartHere:
        raise
    except (Exception, SystemExit) as error:
        lacks = isinstance(error, MemoryError) or _is_missing(place, error)
        kind = CannotStartHere if lacks else InvalidInput
        raise kind(
            f"entry point {entry_point!r} cannot be imported: {error_text(error)}"
        ) from error
    finally:
        _importing.now = outer
    found = attribute(module, name)
    if found is None:
        raise InvalidInput(f"entry point {entry_point!r}: there is no {name!r} in {place}")
    if not callable(found):
        raise InvalidInput(f"entry point {entry_point!r} is not a function but a "
                           f"{type(found).__name__}")  # fmt: skip
    function: Callable[..., Any] = found
    return function


_importing = threading.local()


def importing() -> str:
    """Return the entry point that this thread is importing the module of; empty if it is not."""
    found: str = getattr(_importing, "now", "")
    return found


def check_guarded(what: str, of: str = "") -> None:
    """Check that a call is not made by a program's top level while an attempt, or a check of an
    entry point, imports the program: it may wait for the job of this very attempt.

    Args:
        of: the entry point of the job that the call submits or waits for. A job of another module
            than the one that is imported is not refused. Empty if it may be any job.

    Raises:
        InvalidInput: it is.
    """
    entry_point = importing()
    if entry_point and (not of or _module_of(of) == _module_of(entry_point)):
        raise InvalidInput(
            f"{what} was called while jrs imports entry point {entry_point!r}, as each attempt of "
            'its job does: put what only the program is to do under if __name__ == "__main__":'
        )


def _module_of(entry_point: str) -> str:
    """Return the name under which the module of an entry point is loaded."""
    place = entry_point.rpartition(":")[0]
    return _module_name(place) if place.endswith(".py") else place


def load_in_thread(entry_point: str) -> Callable[..., Any]:
    """Return what `load` does, for a thread of a process in which other jobs run.

    A module next to a file has one name in the whole process: it must not be taken for that of
    another folder.

    Raises:
        CannotStartHere: a module of the folder has the name of one that was loaded here from the
            folder of another job's file; or as `load`.
        InvalidInput: as `load`.
    """
    place = entry_point.rpartition(":")[0]
    if place.endswith(".py") and Path(place).is_file():
        folder = os.path.dirname(os.path.abspath(place))
        for name, other in _loaded_from(_of_threads - {folder}):
            if name == Path(place).stem:
                continue  # It is loaded by its path.
            if Path(folder, f"{name}.py").is_file() or Path(folder, name).is_dir():
                raise CannotStartHere(
                    f"entry point {entry_point!r}: this process has loaded {other} for a job in "
                    f"its threads, and {folder} has a module {name!r}, too: submit the job with "
                    "the runner process, or give the modules different names"
                )
        _of_threads.add(folder)
    return load(entry_point)


_of_threads: set[str] = set()
"""The folders of the files that were loaded for threads of this process."""


def _loaded_from(folders: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and files of the modules that were loaded from some folders."""
    inside = tuple(folder + os.sep for folder in folders)
    if not inside:
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if "." not in name and file.startswith(inside):
            yield name, file


def attribute(module: ModuleType | None, name: str) -> Any:
    """Return what has a qualified name in a module; None if nothing has it."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def check_arguments(
    function: Callable[..., Any], entry_point: str, arguments: dict[str, Any]
) -> None:
    """Check that a call of a job's function with `arguments` runs it; call nothing.

    Raises:
        InvalidInput: it does not take them, or is no plain function.
    """
    check_plain(function, entry_point)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # Some builtins have no signature.
    try:
        signature.bind("job", **arguments)
    except TypeError as error:
        why = _mismatch(signature, arguments) or f"it cannot be called with the job: {error}"
        raise InvalidInput(f"{entry_point}: {why}") from None


def check_plain(function: Callable[..., Any], what: str) -> None:
    """Check that a call of a function runs its code, and does not only make an object that would.

    Raises:
        InvalidInput: it is a coroutine function or a generator function.
    """
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_of(function) for is_of in kinds):
        raise InvalidInput(
            f"{what}: it is a coroutine or generator function, and a call does not run its code: "
            "give a plain function, such as one that calls asyncio.run(…)"
        )


def _mismatch(signature: inspect.Signature, arguments: dict[str, Any]) -> str:
    """Return which arguments of a job are missing or unknown; empty if neither is the case."""
    # The first parameter is the job.
    given = list(signature.parameters.values())[1:]
    if any(one.kind is one.POSITIONAL_ONLY for one in given):
        return ""
    named = [one for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [one.name for one in named]
    missing = [one.name for one in named if one.default is one.empty and one.name not in arguments]
    unknown = [name for name in arguments if name not in names]
    if any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
        unknown = []
    said = [f"the argument {name!r} is missing" for name in missing]
    said += [f"there is no argument {shown(name)}{did_you_mean(name, names)}" for name in unknown]
    return "; ".join(said)


def absolute(entry_point: str) -> str:
    """Return `entry_point` with the path of a file made absolute, for another process to load."""
    place, colon, name = entry_point.rpartition(":")
    return f"{os.path.abspath(place)}:{name}" if colon and place.endswith(".py") else entry_point


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that decorators have wrapped; `function` itself if it wraps itself."""
    with suppress(ValueError):
        function = inspect.unwrap(function)
    return function


def name_of(function: Callable[..., Any]) -> str:
    """Return where a function is, as ``module:qualname``, for telling it from another one: no code
    of it, which may be mended between two runs. Lambdas of one function have one name.

    A program is named by its module or file, not by ``__main__``, which every program is; and not
    by its folder, which may differ from host to host.
    """
    function = unwrapped(function)
    function = getattr(function, "func", function)  # Of a `functools.partial`.
    name = getattr(function, "__qualname__", type(function).__qualname__)
    place = getattr(function, "__module__", None) or "?"
    if place == "__main__":
        program = sys.modules["__main__"]
        spec = getattr(program, "__spec__", None)
        place = spec.name if spec is not None else Path(getattr(program, "__file__", place)).name
    return f"{place}:{name}"


def from_file(entry_point: str) -> ModuleType | None:
    """Return the module that was loaded for an entry point in a file; None for any other."""
    place = entry_point.rpartition(":")[0]
    return sys.modules.get(_module_name(place)) if place.endswith(".py") else None


def _is_missing(place: str, error: BaseException) -> bool:
    """Return whether the module of that name, or a package that it is in, does not exist: not
    whether something that it imports does not."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return bool(name) and f"{place}.".startswith(f"{name}.")


def _module_name(place: str) -> str:
    """Return the name under which the module of a file is loaded: as a script next to it would
    import it, unless another module has that name, such as ``queue`` of Python itself."""
    stem = Path(place).stem
    loaded = sys.modules.get(stem)
    free = loaded is None or getattr(loaded, "__file__", None) == os.path.abspath(place)
    return stem if free else f"jrs_file_{stem}"


def _from_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise CannotStartHere(f"entry point: there is no file {place}")
    name = _module_name(place)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The code can import modules in its folder, as a script can. Threads come here for each job.
    folder = os.path.dirname(os.path.abspath(path))
    if sys.path[:1] != [folder]:  # In one step: other threads import meanwhile.
        sys.path = [folder, *(place for place in sys.path if place != folder)]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
