"""Eight processes on one key: no acknowledged update is lost, none is counted twice."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.operations import Create
from jrs.testing.contract import present
from jrs.testing.worker import Worker
from tests.support import in_long_form

PROCESSES, ATTEMPTS = 8, in_long_form(2000, 500)


@pytest.mark.parametrize("seal_at", [8 << 20, 20_000], ids=["one-segment", "compacting"])
def test_contended_updates(tmp_path: Path, seal_at: int) -> None:
    """Attempts of 8 processes to read, modify and write on one key end at the acknowledged sum."""
    before = f"from jrs.backends.file import backend\nbackend.SEAL_AT = {seal_at}\n"
    before += f"backend.FileBackend.__init__.__kwdefaults__['seal_at'] = {seal_at}"
    with FileBackend(tmp_path) as backend, ExitStack() as stack:
        backend.commit(Create("n", b"0"))
        workers = [
            stack.enter_context(Worker(tmp_path.as_uri(), "default", before=before))
            for _ in range(PROCESSES)
        ]
        for worker in workers:
            worker.send("attempt", "n", ATTEMPTS)
        done = [worker.receive() for worker in workers]

        assert present(backend, "n").value == b"%d" % sum(done)
        assert sum(done) >= ATTEMPTS
        for worker in workers:
            record = worker.get("n")
            assert record == present(backend, "n")
    assert bool(list(tmp_path.rglob("*.run"))) is (seal_at < 1 << 20)
