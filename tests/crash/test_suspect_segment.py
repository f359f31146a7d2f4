"""A segment whose sync failed: its page cache may hold what the disk does not have.

None of it may be shown, and no commit may be acknowledged in it, before a base holds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.testing.contract import contents
from tests.crash.forms import begin_in_old_form


@pytest.fixture(params=["format 2", "format 3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "format 2":
        begin_in_old_form(tmp_path)
    return tmp_path


def is_log(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").endswith((".log", ".tail"))


@contextmanager
def failing(call: str, number: int, only: int | None = None) -> Iterator[None]:
    """Let each `os.call` on a log fail with this errno; only that on one descriptor, if named."""
    real = getattr(os, call)

    def fail(fd: int, *arguments: object) -> object:
        if fd == only or (only is None and is_log(fd)):
            raise OSError(number, os.strerror(number))
        return real(fd, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, fail)
        yield


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def test_nothing_is_shown_while_the_segment_cannot_be_sealed(root: Path, number: int) -> None:
    """B4: after a failed sync the disk takes no seal, either. However often one asks, nothing that
    the sync had to cover is shown or built upon; once the disk takes writes, all continues."""
    with FileBackend(root) as backend:
        backend.commit(Create("before", b""))
        suspect = backend.replica.start
        with failing("fdatasync", errno.EIO), pytest.raises(OutcomeUnknown, match="sync failed"):
            backend.commit(Create("k", b""))
        with failing("write", number):
            for _ in range(3):
                with pytest.raises(Unavailable):
                    backend.get("k")
            with pytest.raises(Unavailable):
                backend.commit(Create("refused", b""))
        backend.commit(Create("after", b""))
        assert backend.replica.start > suspect
        found = contents(backend)
        assert found.keys() == {"before", "k", "after"}
        with FileBackend(root) as other:
            assert contents(other) == found


def test_an_own_sync_does_not_vouch_for_what_another_one_could_not_sync(root: Path) -> None:
    """B4: a commit behind one whose sync failed is of unknown outcome, although its own sync
    succeeded; both are shown only from a new base."""
    with FileBackend(root) as first, FileBackend(root) as second:
        first.commit(Create("a", b""))
        second.commit(Create("b", b""))
        suspect = second.replica.start
        with (
            failing("fdatasync", errno.EIO, only=first.replica.segment.log.fd),
            pytest.raises(OutcomeUnknown),
        ):
            first.commit(Create("k", b""))
        with pytest.raises(OutcomeUnknown, match="another process could not sync"):
            second.commit(Create("l", b""))
        found = contents(second)
        assert second.replica.start > suspect
        assert contents(first) == found


def test_a_sync_that_fails_while_a_reader_syncs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4: a reader whose own sync succeeds trusts nothing if the writer's failed meanwhile."""
    with FileBackend(root) as writer, FileBackend(root) as reader:
        writer.commit(Create("a", b""))
        assert reader.get("a") is not None
        writer.commit(Create("b", b""))
        log, real = reader.replica.segment.log, os.fdatasync

        def fdatasync(fd: int) -> None:
            if fd == log.fd:
                log.path.with_suffix(".suspect").touch()
            real(fd)

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        assert reader.get("b") is not None
        assert reader.replica.start > log.start
