"""Found: the first kind of server that this machine offers.

1. The server that `JRS_TEST_ETCD` or `JRS_TEST_ZOOKEEPER` names, by a backend's URL. Tests use it
   unchanged; a test that kills or configures its server gets one of the other kinds.
2. Containers, if a Docker engine answers and has the image or can pull it.
3. Processes of this machine, if Debian's packages are installed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NoReturn

from jrs.testing.servers.containers import Containers, etcd_image, require, zookeeper_image
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.local import Local, etcd_binary, zookeeper_classpath
from jrs.testing.servers.named import Named
from jrs.testing.servers.provisioner import Provisioner
from jrs.testing.servers.zookeeper import ZooKeeperServer

ETCD_VARIABLE = "JRS_TEST_ETCD"
ZOOKEEPER_VARIABLE = "JRS_TEST_ZOOKEEPER"


def find_etcd(members: int = 1, **options: Any) -> EtcdServer:
    """Return a private etcd, not started; options are those of `EtcdServer`.

    Raises:
        ServerMissing: none can be run here; says what to install.
    """
    return EtcdServer(_etcd_place(), members, **options)


def find_zookeeper(members: int = 1, **options: Any) -> ZooKeeperServer:
    """Return a private ZooKeeper, not started; options are those of `ZooKeeperServer`.

    Raises:
        ServerMissing: none can be run here; says what to install.
    """
    return ZooKeeperServer(_zookeeper_place(), members, **options)


FINDERS: dict[str, Callable[..., EtcdServer | ZooKeeperServer]] = {
    "etcd": find_etcd,
    "zookeeper": find_zookeeper,
}
"""What finds a server, by the scheme of its URLs."""


def named_etcd(members: int, refuse: Callable[[str], NoReturn]) -> EtcdServer | None:
    """Return the one that the environment names, if that has at least so many members.

    Args:
        members: 1 or 3.
        refuse: called with the reason when a test wants to hurt it; raises.
    """
    place = _named(ETCD_VARIABLE, 2379, members, refuse)
    return None if place is None else EtcdServer(place, members)


def named_zookeeper(members: int, refuse: Callable[[str], NoReturn]) -> ZooKeeperServer | None:
    """Return the one that the environment names, if that has at least so many members.

    Args:
        members: 1 or 3.
        refuse: called with the reason when a test wants to hurt it; raises.
    """
    place = _named(ZOOKEEPER_VARIABLE, 2181, members, refuse)
    return None if place is None else ZooKeeperServer(place, members)


def _named(
    variable: str, default_port: int, members: int, refuse: Callable[[str], NoReturn]
) -> Named | None:
    url = os.environ.get(variable)
    if not url:
        return None
    place = Named(url, default_port, refuse)
    return place if len(place.address.endpoints) >= members else None


def _etcd_place() -> Provisioner:
    return _place(etcd_image(), etcd_binary)


def _zookeeper_place() -> Provisioner:
    return _place(zookeeper_image(), zookeeper_classpath)


def _place(image: str, require_local: Callable[[], object]) -> Provisioner:
    reason = _without_containers(image, os.environ.get("DOCKER_HOST"))
    if reason is None:
        return Containers()
    try:
        require_local()
    except ServerMissing as error:
        raise ServerMissing(f"{error}, or run Docker ({reason})") from None
    return Local()


@functools.cache  # A registry that cannot be reached may take long to fail.
def _without_containers(image: str, engine: str | None) -> str | None:
    """Return why no containers of an image can be started, or None."""
    try:
        require(image)
    except ServerMissing as error:
        return str(error)
    return None
