"""Credentials: secret environment variables, and which processes receive them.

Every child inherits the environment of its parent, and every process of the same user can read it
in ``/proc``. So masters remove secrets from the environment of the processes that they start. An
attempt receives them over the pipe from which it reads its launch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import redacted

SPEC_KEY_FILE = "JRS_SPEC_KEY_FILE"
"""The environment variable that names the file with the key that signs specs."""


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give access to the backend or to the key that signs specs."""
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
    """Put secrets into the environment while a backend is opened. Start no child meanwhile."""
    environment.update(secrets)
    try:
        yield
    finally:
        for name in secrets:
            environment.pop(name, None)


@contextmanager
def withheld(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Remove the secrets from the environment while foreign code starts a child. Open no backend
    meanwhile."""
    secrets = take(environment)
    try:
        yield
    finally:
        environment.update(secrets)


@contextmanager
def opened(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open a file that holds a secret. Its group may read it, as the files of a Kubernetes Secret.

    Args:
        path: the file.
        what: what messages call it.

    Raises:
        InvalidInput: the file cannot be read, users other than its owner and group have access to
            it, or its group can write to it.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o037:
                raise InvalidInput(
                    f"others have access to the {what} {path}, or its group can change it: "
                    f"chmod g-wx,o= {path}"
                )
            yield file
    except OSError as error:
        raise InvalidInput(f"the {what} {path} cannot be read: {error.strerror}") from None


def _is_secret(name: str, value: str) -> bool:
    if name == "JRS_BACKEND":
        return redacted(value) != value  # It may hold a password.
    return name.startswith("JRS_BACKEND_") or name == SPEC_KEY_FILE
