"""Chaos tests: whether jobs, drivers and backends survive whatever breaks.

For one's own jobs, in a file of tests::

    from jrs.testing.chaos import *

    @chaos(masters=3, backend=["file", "etcd"], seconds=30, nemesis=kill(every=2) | pause(3))
    def test_orders(world):
        world.submit("orders", "etl.jobs:orders", copies=20)
        world.check(once_per_job, no_overlap, nothing_lost, fenced, linearizable, nothing_left)

For the file backend itself there are programs that break things and print one line of figures,
``python -m jrs.testing.chaos.damage --help``: `damage` damages files of a store, and compares every
answer with the truth. `powercut` records a run, and opens every disk state that a power cut could
leave. `interleave` lets a second handle act between any two system calls of the first one. `soak`
puts masters and their jobs through kills, pauses and a full disk.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
