"""The settings in ``jrs.toml``: what the commands in a folder use unless a flag or the environment
says otherwise."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jrs.cli import retention_options
from jrs.cli.durations import ABOVE_ZERO
from jrs.contract.errors import InvalidInput, JrsError
from jrs.contract.texts import did_you_mean, shown
from jrs.records.checks import check_cluster
from jrs.records.policies import MOST

CONFIG = "JRS_CONFIG"
"""The environment variable that names the file."""
NAME = "jrs.toml"
"""The file that is read if it is in the current folder and no variable names another one."""

_KINDS: dict[str, tuple[type, ...]] = {
    "backend": (str,),
    "cluster": (str,),
    "storage": (str,),
    "ttl": (int, float),
    "slots": (int,),
    "warm": (int,),
    "preload": (list,),
    "retention": (dict,),
}
_CHECKS: dict[str, Callable[[Any], object]] = {
    "cluster": check_cluster,
    "ttl": lambda ttl: ABOVE_ZERO(str(ttl)),
    "slots": click.IntRange(1, MOST),
    "warm": click.IntRange(0, MOST),
    "retention": retention_options.retention,
}
"""What else is asked of a value: the same as of the option."""
_SAYS = {str: "a text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}


def path_of_settings() -> Path | None:
    """Return the file that is read; None if there is none."""
    named = os.environ.get(CONFIG)
    if named:
        return Path(named)
    return Path(NAME) if Path(NAME).is_file() else None


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a file. A relative storage is meant from the file's folder.

    Raises:
        InvalidInput: the file cannot be read or is no TOML, or a setting is unknown or wrong; the
            message names the file and the setting.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    for name, value in found.items():
        if name not in _KINDS:
            raise InvalidInput(
                f"{path}: there is no setting {shown(name)}{did_you_mean(name, _KINDS)}; there are "
                f"{', '.join(_KINDS)}"
            )
        if type(value) not in _KINDS[name]:
            what = _SAYS[_KINDS[name][-1]]
            raise InvalidInput(f"{path}: {name} must be {what}, not {shown(value)}")
    for name, check in _CHECKS.items():
        try:
            if name in found:
                check(found[name])
        except (JrsError, click.BadParameter) as error:
            said = error.message if isinstance(error, click.BadParameter) else str(error)
            raise InvalidInput(f"{path}: {name}: {said}") from None
    if "storage" in found and "://" not in found["storage"]:
        found["storage"] = str(path.absolute().parent / found["storage"])
    return found


def settings() -> dict[str, Any]:
    """Return the settings that hold for the running command, read once."""
    meta = click.get_current_context().find_root().meta
    if __name__ not in meta:
        path = path_of_settings()
        meta[__name__] = {} if path is None else read_settings(path)
    found: dict[str, Any] = meta[__name__]
    return found


def from_file(name: str, default: Any = None) -> Callable[[], Any]:
    """Return the default of an option: what the file says, else `default`."""
    return lambda: settings().get(name, default)
