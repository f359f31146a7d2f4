"""Addresses on the command line, ``unix:/run/jrs/master.sock`` or ``HOST:PORT``; and a default."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import click

from jrs.contract.errors import InvalidInput
from jrs.host.listening import Address


class Listen(click.ParamType):  # type: ignore[type-arg]
    """An address to listen at, or to connect to."""

    name = "address"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        if isinstance(value, Address):
            return value
        try:
            return Address.of(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


LISTEN = Listen()


def default_address(cluster: str) -> Address:
    """Return the socket at which the API of a cluster listens if no address is named.

    It is in a folder that only this user can change, which is made if it is missing.

    Raises:
        InvalidInput: there is no such folder.
    """
    folder = _runtime_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror}; give --listen unix:/path") from None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInput(f"{folder} can be changed by others; give --listen unix:/path")
    return Address.of(f"unix:{folder / f'{cluster}.sock'}")


def _runtime_folder() -> Path:
    """Return where sockets of this user are: what systemd made for the service, or the host's, or
    the session's folder, or else one in the temporary folder."""
    made = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if made:
        return Path(made)
    if os.geteuid() == 0:
        return Path("/run/jrs")
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and Path(session).is_dir():
        return Path(session) / "jrs"
    return Path(tempfile.gettempdir()) / f"jrs-{os.geteuid()}"
