"""Write to a server and read from it, as an ordinary client of its kind does."""

from __future__ import annotations

import base64

from kazoo.client import KazooClient

from jrs.testing.servers import EtcdServer, Server


def write(server: Server, name: str, value: bytes) -> None:
    """Write a value through the first member."""
    if isinstance(server, EtcdServer):
        server.ask("/v3/kv/put", {"key": _encoded(name.encode()), "value": _encoded(value)})
        return
    with Kazoo(server) as client:
        client.create(f"/{name}", value)


def read(server: Server, name: str) -> bytes | None:
    """Read a value from the first member."""
    if isinstance(server, EtcdServer):
        answer = server.ask("/v3/kv/range", {"key": _encoded(name.encode())})
        return base64.b64decode(answer["kvs"][0]["value"]) if "kvs" in answer else None
    with Kazoo(server) as client:
        return bytes(client.get(f"/{name}")[0])


class Kazoo:
    """A kazoo client of the first member, connected within `start_timeout` seconds and closed."""

    def __init__(
        self,
        server: Server,
        *,
        timeout: float = 10.0,
        start_timeout: float = 20.0,
        **options: object,
    ) -> None:
        host, port = server.endpoints[0]
        self._client = KazooClient(f"{host}:{port}", timeout=timeout, **options)
        self._start_timeout = start_timeout

    def __enter__(self) -> KazooClient:
        try:
            self._client.start(self._start_timeout)
        except BaseException:
            self.__exit__()
            raise
        return self._client

    def __exit__(self, *error: object) -> None:
        self._client.stop()
        self._client.close()


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
