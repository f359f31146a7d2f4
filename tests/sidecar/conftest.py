"""A real server over a real backend, asked through real sockets."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs import Client, connect
from jrs.host.listening import Address
from jrs.sidecar.serving import Guards, serve
from jrs.testing.servers.ports import Ports
from tests.support import BOUND

_PORTS = Ports()
OPERATE, READ = "operate-0123456789abcdef", "read-0123456789abcdef"


@attrs.frozen
class Answer:
    """What a server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Events:
    """A stream of events that a test reads line by line."""

    def __init__(
        self, connection: http.client.HTTPConnection, path: str, token: str, last_event_id: str = ""
    ) -> None:
        self._connection = connection
        headers = {"Authorization": f"Bearer {token}"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        connection.request("GET", path, headers=headers)
        self._answer = connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def next(self) -> tuple[str, Any]:
        """Return the name and the data of the next event."""
        name = ""
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))

    def until(self, wanted: Callable[[str, Any], bool]) -> Any:
        """Return the data of the first event that is wanted."""
        while True:
            name, data = self.next()
            if wanted(name, data):
                return data

    def until_its_end(self) -> None:
        """Read until the server ends the stream, in whatever way."""
        with suppress(http.client.IncompleteRead, ConnectionError):
            while self._answer.readline():
                pass

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


class Served:
    """A server in this process, at a TCP port."""

    def __init__(self, client: Client, port: int, tokens: Path) -> None:
        self.client = client
        self.port = port
        self.tokens = tokens

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = OPERATE,
        raw: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """Send one request. Headers are given with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, sent)
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **how: Any) -> Answer:
        return self.ask("GET", path, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> Answer:
        return self.ask("POST", path, body, **how)

    def events(self, path: str, token: str = READ, last_event_id: str = "") -> Events:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND)
        return Events(connection, path, token, last_event_id)


def write_tokens(path: Path, text: str) -> Path:
    """Write a token file as an operator does, with mode 0600."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text)
    os.replace(new, path)
    return path


@contextmanager
def serving(
    client: Client, folder: Path, *, with_tokens: bool = True, **options: Any
) -> Iterator[Served]:
    """Serve a client's cluster meanwhile."""
    port = _PORTS.take()
    text = f"# who may\noperate {OPERATE} ops\nread {READ} dashboard\n"
    tokens = write_tokens(folder / "tokens", text)
    stop, ready = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    address = Address.of(f"127.0.0.1:{port}")

    def run() -> None:
        try:
            guards = Guards(tokens if with_tokens else None, **options)
            serve(client, address, guards, stop, lambda at: ready.set())
        except BaseException as error:
            errors.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    try:
        assert ready.wait(BOUND)
        assert not errors
        yield Served(client, port, tokens)
    finally:
        stop.set()
        thread.join(BOUND)
        assert not thread.is_alive()
    assert not errors


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with connect((tmp_path / "store").as_uri()) as client:
        yield client


@pytest.fixture
def served(client: Client, tmp_path: Path) -> Iterator[Served]:
    with serving(client, tmp_path) as served:
        yield served


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
