"""Servers for tests and for the demo: a real etcd or ZooKeeper, started, hurt and healed.

::

    with find_etcd(members=3) as server:
        backend = open_backend(server.url())
        server[server.leader()].kill()
        …
        server.heal()

`jrs.testing.servers.fixtures` has them as pytest fixtures.
"""

from jrs.testing.servers.errors import NotOurs, ServerError, ServerMissing, ServerUnhealthy
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.found import FINDERS, find_etcd, find_zookeeper
from jrs.testing.servers.local import Local
from jrs.testing.servers.proxy import Proxies, Proxy
from jrs.testing.servers.server import Member, Server
from jrs.testing.servers.zookeeper import ZooKeeperServer

__all__ = [
    "FINDERS",
    "EtcdServer",
    "Local",
    "Member",
    "NotOurs",
    "Proxies",
    "Proxy",
    "Server",
    "ServerError",
    "ServerMissing",
    "ServerUnhealthy",
    "ZooKeeperServer",
    "find_etcd",
    "find_zookeeper",
]
