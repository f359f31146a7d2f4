"""The page of a demo: `jrs serve` next to it, and how a browser opens it."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError
from jrs.sidecar.opening import link
from jrs.store.opening import open_backend
from jrs.testing.masters import LoggedProcess
from jrs.testing.polling import Poll

_PATIENCE = 60.0
_SERVING = re.compile(r"\bserving cluster \S+ at (127\.0\.0\.1:\d+)$", re.MULTILINE)


@contextmanager
def page(url: str, cluster: str, storage: str | Path, folder: Path) -> Iterator[str]:
    """Serve the page of a cluster meanwhile. Yield how to open it, or why there is none, in a line.

    Args:
        url: the backend's.
        storage: where the cluster's jobs keep their files.
        folder: for the file with the token, which only this user can read.
    """
    with open_backend(url, cluster=cluster):
        pass  # The page is of a cluster that exists.
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(f"read {secrets.token_urlsafe(16)} demo\n")
    command = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, "serve"]
    command += ["--listen", "127.0.0.1:0", "--token-file", str(tokens), "--storage", str(storage)]
    with closing(LoggedProcess("page", command, {}, piped=False)) as server:
        yield _how_to_open(server, tokens)


def _how_to_open(server: LoggedProcess, tokens: Path) -> str:
    deadline, pause = Deadline.after(_PATIENCE), Poll()
    while (serving := _SERVING.search(server.errors())) is None:
        if deadline.expired or not server.alive:
            why = server.errors().rpartition("\n")[2] or "jrs serve does not answer"
            return f"No page: {why.removeprefix('jrs: ')}"
        pause.sleep()
    address = f"http://{serving[1]}"
    try:
        opens = link(address, tokens)
    except JrsError as error:
        return f"No page: {error}"
    again = f"jrs open {address} --token-file {tokens}"
    return f"Watch the failovers at {opens} (works once, for a minute; another link: {again})"
