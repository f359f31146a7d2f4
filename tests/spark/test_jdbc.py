"""A stream into a database: each row once, over the death of a leader, and never by an old one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import jrs
from examples import jdbc
from jrs import JobSpec
from jrs.records.model import JobStatus
from jrs.store.jobs import JobCatalog
from jrs.testing.masters import Masters
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing

from .conftest import Cluster
from .postgres import Postgres, find_postgres, running
from .support import BOUND

EXAMPLE = Path(jdbc.__file__)
FILES, ROWS = 6, 25


@pytest.fixture
def database() -> Iterator[Postgres]:
    try:
        programs = find_postgres()
    except ServerMissing as error:
        missing(error)
    with running(programs) as found:
        yield found


def batches(database: Postgres) -> int:
    """Return how many batches the table has."""
    if not database.ask("SELECT 1 FROM pg_tables WHERE tablename = 'progress'"):
        return 0
    return int(database.ask("SELECT coalesce(max(batch) + 1, 0) FROM progress")[0])


def test_each_row_is_written_once(cluster: Cluster, database: Postgres, tmp_path: Path) -> None:
    """The leader of examples/jdbc.py dies; every row is in the table, once. Then a batch of an
    earlier epoch, and one that is there already, are refused by the statement itself."""
    masters = cluster.masters
    left_over = f"staging_{zlib.crc32(b'payments-1'):08x}_0_1_7"  # By an attempt that was killed.
    database.ask(f"CREATE TABLE {left_over} (id bigint)")
    submit(cluster, database, tmp_path / "in", FILES)
    for name in ("m1", "m2"):
        masters.start(name)
    masters.until(lambda: batches(database) > 2, "batches are there", BOUND)
    masters.leader().kill()
    cluster.until_clean("payments-1")
    result = cluster.results.wait("payments-1", 0)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.attempt == 2
    assert ids(database) == list(range(FILES * ROWS))
    assert database.ask("SELECT tablename FROM pg_tables WHERE tablename LIKE 'staging%'") == []
    # Not always one batch for each file: a source that died between its own log and the plan of the
    # batch gives the next one two files.
    written = batches(database)
    assert reserved(database, epoch=1, batch=written) == "INSERT 0 0"
    assert reserved(database, epoch=9, batch=written - 1) == "INSERT 0 0"
    assert repeated(database, epoch=9, batch=written - 2) == "UPDATE 0"
    assert repeated(database, epoch=1, batch=written - 1) == "UPDATE 0"
    assert repeated(database, epoch=9, batch=written - 1) == "UPDATE 1"
    assert reserved(database, epoch=8, batch=written) == "INSERT 0 0"
    assert reserved(database, epoch=9, batch=written) == "INSERT 0 1"


def test_a4_a_restore_takes_rows_back(database: Postgres) -> None:
    """A4: batch 1 comes again with other rows after a restore to batch 0: they are not taken for
    the former batch 1, whose rows leave the table together with those of batch 2."""
    database.ask(";".join(jdbc.TABLES))
    for row, (generation, batch) in enumerate([(1, 0), (1, 1), (1, 2), (2, 1), (2, 1), (1, 3)]):
        if reserved(database, epoch=1, generation=generation, batch=batch) == "INSERT 0 1":
            database.ask(jdbc.TAKE_BACK.replace("?", "'payments-1'", 1).replace("?", str(batch)))
            values = f"({row}, 0, 0, 'payments-1', {batch})"
            database.ask(f"INSERT INTO payments VALUES {values}")

    assert ids(database) == [0, 3]


def test_a4_the_job_is_restored(cluster: Cluster, database: Postgres, tmp_path: Path) -> None:
    """A4: suspended, resumed, and taken back to before: every row is in the table, once. Before
    that, the restore says what the job has written meanwhile."""
    files = 3 * FILES
    masters = cluster.masters
    masters.start("m1")
    with jrs.connect(masters.url, storage=cluster.storage.root.parent) as client:
        submit(cluster, database, tmp_path / "in", files)
        job = client.job("payments-1")
        early = suspended(masters, database, job, 1)
        assert job.snapshots.create("early").number > 0
        job.resume()
        assert suspended(masters, database, job, early + 1) > early
        with pytest.raises(jrs.WrongState, match="has called its function for batch"):
            job.snapshots.restore("early")
        job.snapshots.restore("early", accept_published=True)
        job.resume()
        cluster.until_clean("payments-1")
    result = cluster.results.wait("payments-1", 0)

    assert result.status is JobStatus.FINISHED, result.failure
    assert ids(database) == list(range(files * ROWS))
    assert database.ask("SELECT generation FROM progress") == ["2"]


def submit(cluster: Cluster, database: Postgres, source: Path, files: int) -> None:
    """Submit the example, with files of rows to read."""
    source.mkdir()
    for number in range(files):
        numbers = range(number * ROWS, (number + 1) * ROWS)
        rows = [{"id": row, "customer": row % 7, "cents": row} for row in numbers]
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    arguments = {"source": str(source), "url": database.url}
    spec = JobSpec("payments-1", f"{EXAMPLE}:payments", arguments)
    JobCatalog(cluster.masters.backend).submit(spec)


def suspended(masters: Masters, database: Postgres, job: jrs.JobHandle, least: int) -> int:
    """Suspend the job once the table has so many batches; return how many it has then."""
    masters.until(lambda: batches(database) >= least, "batches are there", BOUND)
    job.suspend()
    job.wait_stopped(BOUND)
    return batches(database)


def ids(database: Postgres) -> list[int]:
    return [int(row) for row in database.ask("SELECT id FROM payments ORDER BY id")]


def reserved(database: Postgres, *, epoch: int, batch: int, generation: int = 1) -> str:
    """Run the example's own statement; return what PostgreSQL says of it."""
    values = f"'payments-1', {epoch}, {generation}, {batch}"
    (said,) = database.ask(jdbc.RESERVE.replace("?, ?, ?, ?", values))
    return said


def repeated(database: Postgres, *, epoch: int, batch: int) -> str:
    """Ask by the example's own statement whether a batch is there; return what PostgreSQL says."""
    statement = jdbc.REPEATED
    for value in (epoch, "'payments-1'", epoch, 1, batch):
        statement = statement.replace("?", str(value), 1)
    (said,) = database.ask(statement)
    return said
