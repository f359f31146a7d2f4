"""Three servers on hosts of their own, and a leader that ends up on the side of the fewer ones."""

from __future__ import annotations

import time
from pathlib import Path

from jrs.contract.operations import Create
from jrs.testing.contract import contents
from jrs.testing.masters import Masters
from jrs.testing.servers import Server
from jrs.testing.servers.namespaces import Namespaces
from jrs.testing.worker import Worker
from tests.chaos.support import Stamps, newest, refused_for_good
from tests.unshared import as_root, place, server

__all__ = ["as_root", "place", "server"]

LEADER_HOST, CANDIDATE_HOST = 3, 4
TTL = 5.0
"""Longer than an election among the servers, which the healing may bring about once more."""


def test_a_leader_on_the_side_of_the_minority(
    server: Server, place: Namespaces, tmp_path: Path, cluster: str
) -> None:
    """With the server that leads next to it, it cannot keep the lead: it steps down by its own
    clock, one on the other side takes over, and nothing it writes after the healing is done."""
    few = server.leader()
    many = [server.endpoints[index] for index in range(3) if index != few]
    with (
        Masters(
            server.url(endpoints=many),
            cluster=cluster,
            storage=tmp_path / "jobs",
            ttl=TTL,
            on_event=print,
        ) as masters,
        Worker(server.url(), cluster, prefix=place.hosts.command(LEADER_HOST)) as hand,
    ):
        backend = masters.backend
        masters.start("old", url=server.url(), prefix=place.hosts.command(LEADER_HOST))
        masters.leader()
        stamps = Stamps(tmp_path)
        stamps.submit(backend)
        masters.start("new", prefix=place.hosts.command(CANDIDATE_HOST))
        fence, name = newest(backend)
        hand.commit(Create("proof/before", b""), fence=fence)
        stamps.await_more(masters, fence.epoch)

        assert name == "old"

        since = time.monotonic()
        for here in (few, LEADER_HOST):
            for there in {0, 1, 2, CANDIDATE_HOST} - {few}:
                place.hosts.cut(here, there)
        hand.call("queue", "proof/queued-", 20, [fence.epoch, fence.version])
        hand.send("settle")
        masters.event(lambda e: e.kind in ("lost", "deposed") and e.master == "old", "it is lost")
        lost = time.monotonic() - since
        masters.until(lambda: newest(backend)[0].epoch > fence.epoch, "the other one leads")
        led = time.monotonic() - since
        epoch = stamps.await_newest(masters)
        place.hosts.mend()
        ends = hand.receive()
        refused_for_good(hand, "proof/new-", fence)

        assert "done" not in ends
        assert contents(backend, "proof/").keys() == {"proof/before"}

        assert stamps.finish_in_order(backend) >= epoch > fence.epoch

    print(f"{server.scheme}, partition, ttl {TTL:g} s: down after {lost:.2f} s, "
          f"the other one leads after {led:.2f} s")  # fmt: skip
