"""The format of a cluster: which one is in force, and when it may be raised."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import InvalidInput, UnsupportedVersion, WrongState
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import Create, Record
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import FormatRecord, JobSpec, MasterInfo
from jrs.records.settings import JobSettings
from jrs.records.time_limits import OnTimeout, TimeLimits
from jrs.recovery.inspect.fsck import fsck
from jrs.store import cluster_format, masters, result_index
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.support import result


@pytest.fixture
def backend() -> MemoryBackend:
    """An older cluster that this version works with."""
    backend = MemoryBackend(Space())
    backend.marked_format = OLDEST_FORMAT
    return backend


def at(moment: float) -> Clock:
    return lambda: moment


def test_a_new_cluster_is_of_the_newest_format() -> None:
    """S6: what this version creates, it writes in its newest forms."""
    with open_backend("memory://") as backend:
        assert cluster_format.format_of(backend) == NEWEST_FORMAT


def test_raising_is_durable_and_idempotent(backend: MemoryBackend) -> None:
    """S6: the format is a record of the cluster, and the marker keeps older versions out."""
    for _ in range(2):
        cluster_format.raise_format(backend)
        assert cluster_format.format_of(backend) == backend.marked_format == NEWEST_FORMAT


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """No master writes one while it is waited for, so that the wait can take no time."""
    monkeypatch.setattr(masters, "_sleep", lambda seconds: None)


def test_it_is_not_raised_over_an_older_master(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: while a master runs that does not know the format, it is refused and named."""
    monkeypatch.setattr(cluster_format, "NEWEST_FORMAT", OLDEST_FORMAT + 1)
    registry = Registry(backend, now=at(1000.0))
    registry.put(MasterInfo("m1", "host-a", 77, 1.0, 1.0, reads_format=OLDEST_FORMAT))
    with pytest.raises(WrongState, match="m1 on host-a, pid 77"):
        cluster_format.raise_format(backend, OLDEST_FORMAT + 1, now=at(1005.0))
    assert cluster_format.format_of(backend) == OLDEST_FORMAT
    cluster_format.raise_format(backend, OLDEST_FORMAT + 1, now=at(1100.0))  # It is gone by then.
    stored = backend.get(keys.FORMAT)
    assert stored is not None
    assert decode(FormatRecord, stored.value, stored.key).version == OLDEST_FORMAT + 1


def test_a_newer_cluster_is_refused_by_name(backend: MemoryBackend) -> None:
    """S6: a version that does not know the cluster's format does not work with it."""
    backend.commit(Create(keys.FORMAT, encode(FormatRecord(NEWEST_FORMAT + 1))))
    with pytest.raises(UnsupportedVersion, match=f"format {NEWEST_FORMAT + 1}.*upgrade"):
        cluster_format.ensure_supported(backend, convert=True)


def test_format_1_is_converted_once_its_masters_have_stopped(backend: MemoryBackend) -> None:
    """S6: the upgrade from format 1 is offline: its masters stop, then it is converted."""
    backend.marked_format = 1
    Registry(backend, now=at(1000.0)).put(MasterInfo("m1", "h", 77, 1.0, 1.0))
    with pytest.raises(WrongState, match="start a master of this version"):
        cluster_format.ensure_supported(backend, convert=False, now=at(1100.0))
    with pytest.raises(WrongState, match="m1 on h, pid 77"):
        cluster_format.ensure_supported(backend, convert=True, now=at(1005.0))
    assert backend.marked_format == 1
    cluster_format.ensure_supported(backend, convert=True, now=at(1100.0))
    assert backend.marked_format == OLDEST_FORMAT


def test_clusters_of_one_folder_are_raised_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's marker stays, for masters of an older version that use another cluster of it;
    the raised cluster is of the newest format throughout, for processes that run already, too."""
    (tmp_path / "jrs.json").write_text('{"format": "jrs", "version": 2}')

    def opened(cluster: str) -> Backend:
        return open_backend(tmp_path.as_uri(), cluster=cluster)

    with opened("one") as one, opened("other") as other, opened("one") as early:
        for backend in (one, other):
            JobResultStore(backend).create_dirty(result("job"), None)
        assert not result_index.is_complete(early)
        assert cluster_format.raise_format(one) == OLDEST_FORMAT
        one.compact()  # type: ignore[attr-defined]
        assert result_index.is_complete(early)

    with opened("one") as one, opened("other") as other:
        assert cluster_format.format_of(one) == NEWEST_FORMAT
        assert result_index.is_complete(one)
        assert not fsck(one, None).left_over
        assert cluster_format.format_of(other) == other.marked_format == OLDEST_FORMAT
        assert not result_index.is_complete(other)
        scanned = list[str]()
        page = one._page

        def noted(prefix: str, *rest: Any) -> list[Record]:
            scanned.append(prefix)
            return page(prefix, *rest)

        monkeypatch.setattr(one, "_page", noted)
        assert [entry.job_id for entry in JobResultStore(one).by_end()] == ["job"]
        assert keys.RESULTS not in scanned


def test_a_raise_by_an_older_version_is_completed(tmp_path: Path) -> None:
    """What older versions raised in a folder has no index that a reader may rely on: fsck says so,
    and to raise it again completes it. So it is where the record cannot be read."""
    (tmp_path / "jrs.json").write_text('{"format": "jrs", "version": 2}')
    with open_backend(tmp_path.as_uri()) as backend:
        record = FormatRecord(NEWEST_FORMAT, 1.0, unknown={"more": 1})
        backend.commit(Create(keys.FORMAT, encode(record)))
        assert not result_index.is_complete(backend)
        assert "repeat jrs cluster-format --raise" in fsck(backend, None).left_over[0]

        assert cluster_format.raise_format(backend) == NEWEST_FORMAT
        stored = backend.get(keys.FORMAT)
        assert stored is not None
        completed = attrs.evolve(record, complete=NEWEST_FORMAT)
        assert decode(FormatRecord, stored.value, stored.key) == completed
        assert result_index.is_complete(backend)
        assert not fsck(backend, None).left_over

        backend.overwrite(keys.FORMAT, b"no record")
        assert not result_index.is_complete(backend)


@pytest.mark.parametrize("version", [1, NEWEST_FORMAT + 1])
def test_formats_that_cannot_be_raised_to(backend: MemoryBackend, version: int) -> None:
    """S6: only a format that this version knows can be raised to."""
    with pytest.raises(InvalidInput, match="this jrs knows the formats"):
        cluster_format.raise_format(backend, version)


@pytest.mark.parametrize(
    "needs",
    [
        {"timeout": TimeLimits(60.0)},
        {"timeout": TimeLimits(then=OnTimeout.RESTART)},
        {"settings": JobSettings(env={"A": "1"})},
    ],
)
def test_what_an_older_version_must_not_ignore_needs_the_newest_format(
    backend: MemoryBackend, needs: dict[str, Any]
) -> None:
    """U16, U17: where older masters may run, a job with a time limit or settings is refused and the
    command that raises the format is named; afterwards an older master holds the job by name."""
    catalog = JobCatalog(backend)
    catalog.submit(JobSpec("plain", "m:f", priority=3, tags=("nightly",)))
    with pytest.raises(WrongState, match="jrs cluster-format --raise"):
        catalog.submit(JobSpec("job", "m:f", **needs))

    assert backend.get(keys.JOBS + "job") is None

    cluster_format.raise_format(backend)
    catalog.submit(JobSpec("job", "m:f", **needs))
    versions = {}
    for record in backend.scan(keys.JOBS):
        versions[keys.job_of(record.key)] = record.value[: len(b'{"jrs":"spec/2"')]

    assert versions == {"plain": b'{"jrs":"spec/1"', "job": b'{"jrs":"spec/2"'}
