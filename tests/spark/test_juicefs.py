"""Two drivers of one job on two hosts, both alive, whose storage is a JuiceFS that each host has
mounted for itself: `test_split_brain` on a filesystem that caches names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest

from jrs.recovery.files.job_folders import JobStorage
from jrs.testing.masters import Masters
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.fixtures import missing
from tests.juicefs import UNCACHED, Host, filesystem

from .conftest import Cluster
from .test_split_brain import KINDS, trial


@attrs.frozen
class Hosts:
    """Two hosts that have the storage at the same path, and a third one that caches nothing."""

    old: Host
    new: Host
    observer: Host


@attrs.frozen
class MasterOn:
    """A master on a host, which the masters' own closing ends."""

    cluster: Cluster
    host: Host

    def start(self) -> None:
        self.cluster.masters.start("second", prefix=self.host.command())

    def close(self) -> None:
        pass


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    # Not in pytest's folder: the path of a socket may have 107 bytes.
    with TemporaryDirectory(prefix="jrs-juicefs-") as made, ExitStack() as stack:
        folder = Path(made)
        try:
            jobs = stack.enter_context(filesystem(folder))
        except ServerMissing as error:
            missing(error)
        at = folder / "jobs"
        yield Hosts(
            jobs.host("old", at), jobs.host("new", at), jobs.host("observer", at, *UNCACHED)
        )


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(10))
def test_the_new_driver_survives(
    hosts: Hosts, start_etcd: Callable[..., EtcdServer], tmp_path: Path, kind: str, number: int
) -> None:
    """C1, F7: with two drivers of one job alive on two JuiceFS mounts, no row is doubled, none is
    lost, and the new leader's driver continues, in its first attempt.
    """
    scratch = tmp_path / "scratch"  # As docs/clusters.md has it for a storage that is shared.
    scratch.mkdir()
    masters = Masters(
        start_etcd().url(),
        storage=hosts.old.at,
        ttl=30.0,  # A busy machine must not replace the second leader, too.
        environment={"JRS_SCRATCH": str(scratch)},
    )
    with masters:
        cluster = Cluster(masters, JobStorage(hosts.observer.seen, masters.cluster))
        second = MasterOn(cluster, hosts.new)
        chance = random.Random(f"{kind} {number}")
        rows = trial(cluster, tmp_path / "in", kind, chance, hosts.old.command(), second)
    print(f"two JuiceFS mounts, {kind}, trial {number}: {rows} rows, each once")
