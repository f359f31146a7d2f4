"""Leaders that hang or are cut off until another one leads, and then come back as if nothing was.

The other masters reach the server by another URL than the one that is cut off, and so do not find
its attempts by their mark. Their own watchdogs end those, as on a host of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from jrs.contract.operations import Create, Fence
from jrs.testing.contract import contents
from jrs.testing.masters import MasterEvent, MasterProcess, Masters
from jrs.testing.servers import EtcdServer, Proxies, Server, ServerMissing, ZooKeeperServer
from jrs.testing.servers.fixtures import had, missing
from jrs.testing.servers.namespaces import Namespaces
from jrs.testing.worker import Worker
from tests.chaos.support import Stamps, newest, refused_for_good
from tests.unshared import as_root

__all__ = ["as_root"]

QUEUED = 30
TTL = 4.0
"""A quarter of it is for ending attempts, also on a machine that is busy."""


@attrs.define
class Scene:
    """An old leader that runs a job, a candidate, and a hand that writes with the old fence."""

    masters: Masters
    old: MasterProcess
    hand: Worker
    fence: Fence
    stamps: Stamps

    def other_leads(self) -> int:
        """Wait until another master leads and runs the job; return its epoch."""
        backend = self.masters.backend
        self.masters.until(lambda: newest(backend)[0].epoch > self.fence.epoch, "another one leads")
        epoch = self.stamps.await_newest(self.masters)

        assert newest(backend)[1] == "new"

        return epoch

    def steps_down(self) -> MasterEvent:
        """Wait until the old leader says that it is over: it ends its attempts, or else itself."""
        return self.masters.event(
            lambda e: e.kind in ("lost", "deposed") and e.master == "old", "it steps down by itself"
        )

    def all_is_refused(self, ends: list[str]) -> None:
        """Assert that nothing the old leader wrote since then was done, or is done."""
        refused_for_good(self.hand, "proof/new-", self.fence)

        assert "done" not in ends
        assert contents(self.masters.backend, "proof/").keys() == {"proof/before"}

    def is_undisturbed(self, epoch: int) -> None:
        """Assert that the new leader and its attempt were not disturbed by the old one."""
        self.stamps.await_more(self.masters, epoch)
        gap = self.stamps.never_overlap(self.fence.epoch, epoch)
        print(f"from the old attempt's last sign of life to the new one's first: {gap:.2f} s")

        fence, name = newest(self.masters.backend)

        assert (epoch, "new") == (fence.epoch, name)
        assert f"epoch {epoch}" == self.stamps.finish(self.masters.backend)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def play(
    stack: ExitStack,
    folder: Path,
    cluster: str,
    url: str,
    old_url: str,
    prefix: tuple[str, ...] = (),
) -> Scene:
    """Let an old leader, which has an URL of its own, run the job, next to a candidate."""
    masters = stack.enter_context(Masters(url, cluster=cluster, storage=folder / "jobs", ttl=TTL))
    stamps = Stamps(folder)
    old = masters.start("old", url=old_url, prefix=prefix)

    assert masters.leader() is old

    stamps.submit(masters.backend)
    fence, _ = newest(masters.backend)
    masters.start("new")
    hand = stack.enter_context(Worker(old_url, cluster, prefix=prefix))
    hand.commit(Create("proof/before", b""), fence=fence)
    stamps.await_more(masters, fence.epoch)
    return Scene(masters, old, hand, fence, stamps)


@pytest.mark.parametrize("same", [True, False], ids=["found", "not-found"])
def test_a_leader_that_is_stopped(
    stack: ExitStack, server: Server, tmp_path: Path, cluster: str, same: bool
) -> None:
    """Its attempt has ended before the next leader's begins, also where that does not find it;
    when it wakes up it writes nothing and steps down."""
    proxies = stack.enter_context(Proxies(server.endpoints))
    old_url = server.url() if same else server.url(endpoints=proxies.endpoints)
    scene = play(stack, tmp_path, cluster, server.url(), old_url)
    scene.old.pause()
    scene.hand.stop()
    scene.hand.send("queue", "proof/queued-", QUEUED, [scene.fence.epoch, scene.fence.version])
    scene.hand.send("settle")
    epoch = scene.other_leads()

    scene.old.resume()
    scene.hand.resume()
    scene.hand.receive()
    scene.all_is_refused(scene.hand.receive())

    assert scene.steps_down().epoch == scene.fence.epoch

    scene.is_undisturbed(epoch)


def test_a_leader_that_is_cut_off(
    stack: ExitStack, server: Server, tmp_path: Path, cluster: str
) -> None:
    """It steps down by its own clock while it hears nothing; the watchdog ends its attempt."""
    network = stack.enter_context(Proxies(server.endpoints))
    old_url = server.url(endpoints=network.endpoints)
    scene = play(stack, tmp_path, cluster, server.url(), old_url)
    network.freeze()
    epoch = cut_off(scene)
    network.thaw()
    scene.all_is_refused(scene.hand.receive())
    scene.is_undisturbed(epoch)


@pytest.mark.parametrize("kind", [EtcdServer, ZooKeeperServer], ids=["etcd", "zookeeper"])
@pytest.mark.usefixtures("as_root")
def test_a_leader_on_a_host_that_is_isolated(
    stack: ExitStack, kind: type[EtcdServer] | type[ZooKeeperServer], tmp_path: Path, cluster: str
) -> None:
    """The same on a host whose cable is pulled."""
    try:
        place = Namespaces(1, clients=1)
    except ServerMissing as error:
        missing(error)
    stack.callback(place.close)
    server = stack.enter_context(had(lambda: kind(place, 1)))
    near = stack.enter_context(Proxies(server.endpoints))
    url = server.url(endpoints=near.endpoints)
    scene = play(stack, tmp_path, cluster, url, server.url(), place.hosts.command(1))
    place.hosts.isolate(1)
    epoch = cut_off(scene)
    place.hosts.mend()
    scene.all_is_refused(scene.hand.receive())
    scene.is_undisturbed(epoch)


def cut_off(scene: Scene) -> int:
    """See the old leader step down, and another one lead and run the job, while it is away."""
    scene.hand.call("queue", "proof/queued-", QUEUED, [scene.fence.epoch, scene.fence.version])
    scene.hand.send("settle")
    scene.steps_down()
    epoch = scene.other_leads()
    killed = [event for event in scene.masters.events if event.kind == "orphans"]

    assert killed == []

    return epoch
