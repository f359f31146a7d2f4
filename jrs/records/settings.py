"""JobSettings: what a job's attempts run with: Spark's configuration, files, environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import attrs

from jrs.contract.errors import InvalidInput, TooLarge
from jrs.contract.texts import is_printable, shown
from jrs.records.stored import Stored

MAX_SETTINGS = 64 * 1024
"""Largest settings of a job, in bytes of JSON."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROPERTY = re.compile(r"\s*([^\s#!=:][^\s=:]*)\s*[=:]?\s*(.*?)\s*")
_REFERENCES = ("env", "file")


def _variables(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    for name in value if isinstance(value, dict) else ():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InvalidInput(f"not the name of an environment variable: {shown(name)}")
        if name.startswith("JRS_"):
            raise InvalidInput(f"a job cannot set {name}: variables named JRS_… are those of jrs")
        text = value[name] if isinstance(value, dict) else ""
        if isinstance(text, str) and "\0" in text:
            raise InvalidInput(f"the value of {name} has a null character")


def check_reference(name: str, reference: str) -> tuple[str, str]:
    """Return the kind and the place that a reference to a secret names.

    Raises:
        InvalidInput: it is not ``env:VARIABLE`` or ``file:/absolute/path``. The message does not
            repeat it: it may be the secret itself.
    """
    kind, colon, place = reference.partition(":")
    if not colon or kind not in _REFERENCES or not place or "\0" in place:
        raise InvalidInput(
            f"the secret {name} must be a reference and never the value: env:VARIABLE or "
            "file:/absolute/path"
        )
    if kind == "env" and not _VARIABLE.fullmatch(place):
        raise InvalidInput(f"the secret {name} must name an environment variable: env:VARIABLE")
    if kind == "file" and not os.path.isabs(place):
        raise InvalidInput(f"the secret {name} must name a file by its absolute path")
    return kind, place


@attrs.frozen
class JobSettings(Stored):
    """What the attempts of a job run with, in processes of their own.

    A setting of the job's code (`jrs.spark`) overrides `conf`, which overrides
    ``spark-defaults.conf`` of the master's host, which overrides the defaults of jrs.

    Raises:
        InvalidInput: a key of `conf` does not begin with ``spark.``, a name cannot be that of an
            environment variable, a secret is not a reference, or a path is not absolute.
        TooLarge: over 64 KiB of JSON.

    Example::

        settings = jrs.JobSettings(
            conf={"spark.executor.memory": "8g"},
            env={"TZ": "UTC"},
            secrets={"DB_PASSWORD": "file:/run/secrets/db"},
        )
        client.submit("etl.jobs:nightly", id="nightly-2026-11-20", settings=settings)
    """

    conf: dict[str, str] = attrs.field(factory=dict)
    """Spark's configuration, by its own keys."""
    packages: tuple[str, ...] = ()
    """Maven coordinates, ``group:artifact:version``, for the JVM."""
    jars: tuple[str, ...] = ()
    """Absolute paths on the master's host, or URLs that Spark can read."""
    py_files: tuple[str, ...] = ()
    """Modules for the job and Spark's workers: absolute paths of ``.py``, ``.zip`` or ``.egg``."""
    python: str = ""
    """The attempts' interpreter, which must be able to import jrs: an absolute path, or a name that
    the master finds on its PATH. Empty for the master's own."""
    env: dict[str, str] = attrs.field(factory=dict, validator=_variables)
    """Environment variables of the attempts."""
    secrets: dict[str, str] = attrs.field(factory=dict, validator=_variables)
    """Environment variables by reference: ``env:VARIABLE`` or ``file:/absolute/path``. The master
    that starts an attempt resolves them, and the value is stored nowhere."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for key in self.conf:
            check_conf_key(key)
        for name, reference in self.secrets.items():
            check_reference(name, reference)
        if both := {*self.env} & {*self.secrets}:
            raise InvalidInput(f"{min(both)} is given as a variable and as a secret")
        for package in self.packages:
            if package.count(":") < 2 or "," in package:
                raise InvalidInput(f"not a package: {shown(package)}; write group:artifact:version")
        for path in (*self.jars, *self.py_files):
            _check_path(path)
        if "\0" in self.python or ("/" in self.python and not os.path.isabs(self.python)):
            raise InvalidInput(
                f"python must be an absolute path or a name on the PATH, not {shown(self.python)}"
            )
        size = len(json.dumps([getattr(self, field.name) for field in attrs.fields(type(self))]))
        if size > MAX_SETTINGS:
            raise TooLarge(f"the settings of a job take {size:,} bytes; limit {MAX_SETTINGS:,}")

    @property
    def system_texts(self) -> Iterator[tuple[str, str]]:
        """What the operating system or the JVM gets from the settings, and how a user calls it."""
        yield "the setting python", self.python
        for name in ("packages", "jars", "py_files"):
            yield from ((f"the setting {name}", text) for text in getattr(self, name))
        for key, value in {**self.conf, **self.env, **self.secrets}.items():
            yield f"the value of {key}", value

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the settings that are not empty."""
        fields = attrs.fields(type(self))
        return tuple(
            one.name for one in fields if one.name != "unknown" and getattr(self, one.name)
        )


def check_conf_key(key: str) -> None:
    """Raise `InvalidInput` unless `key` can be one of Spark's: jrs passes nothing else on."""
    if not key.startswith("spark.") or not is_printable(key) or " " in key or key.endswith("."):
        raise InvalidInput(f"not a key of Spark's configuration: {shown(key)}; write spark.…")


def properties_in(text: str) -> dict[str, str]:
    """Return the settings in the text of a file such as ``spark-defaults.conf``."""
    found = map(_PROPERTY.fullmatch, text.splitlines())
    return {match[1]: match[2] for match in found if match is not None}


def local_path(place: str) -> str | None:
    """Return the path of a file on this host; None for a place that only Spark can read."""
    parts = urlsplit(place)
    if parts.scheme in ("file", "local"):
        return parts.path
    return None if parts.scheme else place


def _check_path(place: str) -> None:
    path = local_path(place)
    if "," in place or "\0" in place or not place or (path is not None and not os.path.isabs(path)):
        raise InvalidInput(f"not the absolute path of a file, or a URL: {shown(place)}")
