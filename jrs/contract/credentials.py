"""Credentials: what the environment says of who one is, and who is to see it.

A process shows its environment to every child, and to whatever looks into ``/proc`` as its user. So
masters take what is secret out of the environment of the processes that they start; an attempt
gets it over the pipe that it reads its launch from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from jrs.contract.texts import redacted

SPEC_KEY_FILE = "JRS_SPEC_KEY_FILE"
"""The environment variable that names the file of the key that specs are signed with."""


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say how to come into the backend, or whose specs count."""
    return {name: value for name, value in environment.items() if _is_secret(name, value)}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a job, its children and its JVM may see."""
    return {name: value for name, value in environment.items() if not _is_secret(name, value)}


def take(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Remove the secret variables, so that no later child inherits them, and return them."""
    found = secrets_of(environment)
    for name in found:
        del environment[name]
    return found


@contextmanager
def lent(
    secrets: Mapping[str, str], environment: MutableMapping[str, str] = os.environ
) -> Iterator[None]:
    """Have the environment hold secrets while a backend is opened. No child may be started then."""
    environment.update(secrets)
    try:
        yield
    finally:
        for name in secrets:
            environment.pop(name, None)


@contextmanager
def withheld(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Have the environment hold no secret while a child is started by code that is not ours. No
    backend may be opened then."""
    secrets = take(environment)
    try:
        yield
    finally:
        environment.update(secrets)


def _is_secret(name: str, value: str) -> bool:
    if name == "JRS_BACKEND":
        return redacted(value) != value  # It may hold a password.
    return name.startswith("JRS_BACKEND_") or name == SPEC_KEY_FILE
