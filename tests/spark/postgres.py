"""A PostgreSQL of a test's own, from Debian's packages; PostgreSQL refuses to run as root."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.ports import Ports

DRIVER = Path("/usr/share/java/postgresql.jar")
_START = 60
"""Seconds in which it has to start."""


@attrs.frozen
class Postgres:
    """A running server, with an empty database."""

    port: int
    user: str
    programs: Path

    @property
    def url(self) -> str:
        """The URL for JDBC."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user={self.user}"

    def ask(self, statement: str) -> list[str]:
        """Run a statement; return the lines that it gives."""
        place = f"host=127.0.0.1 port={self.port} user={self.user} dbname=postgres"
        command = [str(self.programs / "psql"), place, "-v", "ON_ERROR_STOP=1", "-Atc", statement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()


def find_postgres() -> Path:
    """Return the folder of the server's programs.

    Raises:
        ServerMissing: the server or its driver is not installed.
    """
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not installed or not DRIVER.exists():
        raise ServerMissing(
            "PostgreSQL is not here: apt-get install postgresql libpostgresql-jdbc-java"
        )
    return installed[-1]


@contextmanager
def running(programs: Path) -> Iterator[Postgres]:
    """Run a server, in a folder of its own, which is removed afterwards."""
    user = "postgres" if os.getuid() == 0 else getpass.getuser()
    ports = Ports()
    port = ports.take()
    # Not in pytest's folder, which only its own user can enter.
    folder = Path(tempfile.mkdtemp(prefix="jrs-postgres-"))
    shutil.chown(folder, user)

    def run(*command: object) -> None:
        whole = [*(["runuser", "-u", user, "--"] if os.getuid() == 0 else []), *map(str, command)]
        subprocess.run(
            whole, check=True, timeout=_START, cwd=folder, stdout=subprocess.DEVNULL
        )  # fmt: skip

    data = folder / "data"
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        run(programs / "initdb", "-D", data, "--auth=trust", "--username", user, "--no-sync")
        run(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield Postgres(port, user, programs)
        finally:
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)
        ports.close()
