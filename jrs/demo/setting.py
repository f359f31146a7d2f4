"""The setting of both demos: a reachable backend, a temporary folder, and a cleanup at the end."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.operations import Delete
from jrs.contract.storage_place import WORK, place_of
from jrs.contract.texts import redacted
from jrs.demo import data
from jrs.demo.page import page
from jrs.demo.screen import Screen
from jrs.host import environment
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark.configuration import require_java
from jrs.store.opening import open_backend
from jrs.testing.chaos.recorder import HISTORY, recorded
from jrs.testing.servers import FINDERS, ServerMissing


class Stuck(Exception):
    """The story cannot continue; the message says why."""


@attrs.frozen
class Setting:
    """The setting of one demo."""

    url: str
    """The URL of the backend."""
    folder: Path
    screen: Screen
    clusters: tuple[str, ...]
    """The clusters that the demo may use; only these are cleaned up."""
    storage: str | Path
    """Where their jobs keep their files."""


def perform(
    play: Callable[[Setting], list[str]],
    backend: str | None,
    storage: str | Path | None = None,
    *,
    clusters: tuple[str, ...],
    title: str,
    keep: bool,
) -> int:
    """Play a demo; return its exit status: 0 if it names no difference.

    Args:
        play: shows all differences that it has found, and returns them.
        backend: a URL, or the name of a server that the demo starts and stops; None for a folder.
        storage: a folder or the URL of objects for the files of the jobs; None for a folder of the
            demo's own.
        clusters: the names of the clusters; each name gets a random suffix. The page is that of
            the last one, whose leaders are killed.
        keep: whether the folder stays. It also stays if something is wrong.

    Raises:
        InvalidInput: something that the demo needs is missing; says how to get it.
    """
    _require_everything()
    own = secrets.token_hex(3)
    clusters = tuple(f"{cluster}-{own}" for cluster in clusters)
    given = backend if backend and backend not in FINDERS else None
    if given:
        _require_processes(given, clusters[0])
    folder = Path(tempfile.mkdtemp(prefix="jrs-demo-"))
    screen = Screen()
    own_files = folder / "files"
    own_files.mkdir()  # Its page, as every client, refuses a storage that does not exist.
    files = storage or own_files
    try:
        # This host's copies of objects are in a folder of the demo's own.
        copies = environment.changed(WORK, str(folder / "work"))
        with _terminable(), copies, _reachable(backend, folder) as url, screen:
            screen.say(f"{title}: backend {redacted(url)}, files in {storage or folder}")
            with page(url, clusters[-1], files, folder) as how_to_open:
                screen.say(how_to_open)
                differences = play(Setting(url, folder, screen, clusters, files))
        keep = keep or bool(differences)
        return 1 if differences else 0
    except (TimeoutError, Stuck) as error:
        keep = True
        screen.say(f"\nThe demo is stuck: {error}", "bold red")
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            if given:
                _forget(given, clusters)
            if storage:
                _forget_files(storage, clusters)
        elif backend in FINDERS:
            screen.say(f"\nThe files are kept in {folder}; the demo's own server is gone")
        else:
            names = " and ".join(clusters)
            which = f"clusters {names}" if len(clusters) > 1 else f"cluster {names}"
            screen.say(f"\nEverything is kept: {which}, files in {folder}")


@contextmanager
def _reachable(backend: str | None, folder: Path) -> Iterator[str]:
    """Yield the URL of the backend: the given one, a folder, or a server that the demo starts.

    With ``JRS_CHAOS_HISTORY`` in the environment, all processes of the demo are recorded there.
    """
    as_wanted = recorded if HISTORY in os.environ else str
    if backend not in FINDERS:
        yield as_wanted(backend or (folder / "store").as_uri())
        return
    try:
        server = FINDERS[backend]()
    except ServerMissing as error:
        raise InvalidInput(f"the demo can start no {backend} here: {error}") from None
    with server:
        yield as_wanted(server.url())


def _require_everything() -> None:
    if find_spec("pyspark") is None:
        raise InvalidInput("the demo needs Spark: pip install 'jrs[demo]'")
    require_java()
    data.source()


def _require_processes(url: str, cluster: str) -> None:
    with open_backend(url, cluster=cluster) as backend:
        if not backend.capabilities.multi_process:
            raise InvalidInput(
                f"{redacted(url)} cannot be opened by several processes, and the demo's masters "
                "are processes; leave out --backend for a folder of the demo's own"
            )


def _forget(url: str, clusters: tuple[str, ...]) -> None:
    """Remove what the demo stored in a backend that is not its own."""
    for cluster in clusters:
        with open_backend(url, cluster=cluster) as backend:
            for record in list(backend.scan("")):
                backend.commit(Delete(record.key))


def _forget_files(storage: str | Path, clusters: tuple[str, ...]) -> None:
    """Remove the files of the demo's jobs from a storage that is not its own."""
    for cluster in clusters:
        kept = JobStorage(place_of(storage), cluster)
        if kept.objects is not None:
            kept.objects.delete(one.name for one in kept.objects.under())
        else:
            shutil.rmtree(kept.root, ignore_errors=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: its masters are processes and must not stay."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
