"""A stream into a database: each row once, over the death of a leader, and never by an old one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import jdbc
from jrs import JobSpec
from jrs.records.model import JobStatus
from jrs.store.jobs import JobCatalog
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
    source = tmp_path / "in"
    source.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = [{"id": row, "customer": row % 7, "cents": row} for row in ids]
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    masters = cluster.masters
    arguments = {"source": str(source), "url": database.url}
    spec = JobSpec("payments-1", f"{EXAMPLE}:payments", arguments)
    left_over = f"staging_{zlib.crc32(b'payments-1'):08x}_0_1_7"  # By an attempt that was killed.
    database.ask(f"CREATE TABLE {left_over} (id bigint)")
    JobCatalog(masters.backend).submit(spec)
    for name in ("m1", "m2"):
        masters.start(name)
    masters.until(lambda: batches(database) > 2, "batches are there", BOUND)
    masters.leader().kill()
    cluster.until_clean("payments-1")
    result = cluster.results.wait("payments-1", 0)

    assert result.status is JobStatus.FINISHED, result.failure
    assert result.attempt == 2
    found = database.ask("SELECT id FROM payments ORDER BY id")
    assert found == [str(row) for row in range(FILES * ROWS)]
    assert database.ask("SELECT tablename FROM pg_tables WHERE tablename LIKE 'staging%'") == []
    # Not always one batch for each file: a source that died between its own log and the plan of the
    # batch gives the next one two files.
    written = batches(database)
    assert reserved(database, epoch=1, batch=written) == "INSERT 0 0"
    assert reserved(database, epoch=9, batch=written - 1) == "INSERT 0 0"
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

    assert database.ask("SELECT id FROM payments ORDER BY id") == ["0", "3"]


def reserved(database: Postgres, *, epoch: int, batch: int, generation: int = 1) -> str:
    """Run the example's own statement; return what PostgreSQL says of it."""
    values = f"'payments-1', {epoch}, {generation}, {batch}"
    (said,) = database.ask(jdbc.RESERVE.replace("?, ?, ?, ?", values))
    return said
