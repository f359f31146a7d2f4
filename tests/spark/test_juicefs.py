"""Two drivers of one job on two hosts, both alive, whose storage is a JuiceFS that each host has
mounted for itself: `test_split_brain` on a filesystem that caches names."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
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

TRIALS = 10


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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_new_driver_survives_ten_times(
    hosts: Hosts, etcd_server: EtcdServer, tmp_path: Path, kind: str
) -> None:
    """C1, F7: with two drivers of one job alive on two JuiceFS mounts, no row is doubled, none is
    lost, and the new leader's driver continues, in its first attempt: ten times.
    """
    chance, began, rows = random.Random(kind), time.monotonic(), 0
    for number in range(TRIALS):
        name = f"{tmp_path.name}-{number}"
        with Masters(etcd_server.url(), cluster=name, storage=hosts.old.at) as masters:
            cluster = Cluster(masters, JobStorage(hosts.observer.seen, name))
            second = MasterOn(cluster, hosts.new)
            rows += trial(
                cluster, tmp_path / str(number), kind, chance, hosts.old.command(), second
            )
    print(
        f"jrs on two JuiceFS mounts, {kind}: the new driver survived {TRIALS} of {TRIALS}, in its "
        f"first attempt; {rows} rows, no row doubled, none lost; {time.monotonic() - began:.0f} s"
    )
