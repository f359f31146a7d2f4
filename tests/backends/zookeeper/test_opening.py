"""Opening: what a newcomer gets wrong is said in one line, and changes nothing."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jrs.backends.remote.diagnostics import Fault, look
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.layout import Layout
from jrs.backends.zookeeper.protocol import codec, handshake
from jrs.backends.zookeeper.protocol.access import Access
from jrs.backends.zookeeper.protocol.request import refusal
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    InvalidInput,
    JrsError,
    Unavailable,
    UnsupportedVersion,
    WrongAddress,
)
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.contract import contents
from jrs.testing.servers import ZooKeeperServer
from tests.support import BOUND, until

Open = Callable[..., ZooKeeperBackend]


def refused(url: str, **options: Any) -> JrsError:
    with pytest.raises(JrsError) as caught:
        open_backend(url, **options)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def bare(zookeeper_server: ZooKeeperServer, client: Any) -> Any:
    return client(zookeeper_server.endpoints[0])


@pytest.mark.parametrize(
    ("place", "words", "kind"),
    [
        ("no-such-host.invalid", ["no-such-host.invalid", "not known"], WrongAddress),
        ("127.0.0.1:1", ["127.0.0.1:1", "no server listens"], Unavailable),
        ("127.0.0.1:1,no-such-host.invalid:7", ["127.0.0.1:1", "no-such-host.inv"], Unavailable),
    ],
    ids=["name", "port", "both"],
)
def test_nobody_there(place: str, words: list[str], kind: type[Unavailable]) -> None:
    """Each wrong host or port is named, whatever the timeout. Where no server listens yet, one may
    start later, so that is a passing error."""
    error = refused(f"zookeeper://{place}?timeout=600")
    assert type(error) is kind
    assert all(word in str(error) for word in words)


def test_who_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that takes connections and says nothing is given up within the timeout."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"127.0.0.1:{mute.getsockname()[1]}"
        error = refused(f"zookeeper://{place}?timeout=1")
    assert isinstance(error, Unavailable)
    assert place in str(error)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\1x", b""])
def test_who_is_no_zookeeper(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of another protocol is not taken for a ZooKeeper. One that only ends connections may
    be a ZooKeeper without a quorum: that is waited for until the deadline."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", BOUND)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(said)

        pool.submit(answer)
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        error = refused(f"zookeeper://{place}?timeout={600 if said else 1}")
        listener.shutdown(socket.SHUT_RDWR)
    assert type(error) is (WrongAddress if said else Unavailable)
    assert place in str(error)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what the first look at a server sets; a server that hangs has 0.2 s to answer."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", 0.2)
    found = threading.Event()

    def looking(*args: Any) -> Any:
        found.set()
        return look(*args)

    monkeypatch.setattr(handshake, "look", looking)
    return found


def test_who_hangs_first_and_then_is_no_zookeeper(looked: threading.Event) -> None:
    """The reason of the first round stood for all: it was waited for until the deadline, and then
    said not to answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            with contextlib.suppress(OSError), contextlib.ExitStack() as held:
                while True:
                    connection, _ = listener.accept()
                    if not looked.is_set():
                        held.enter_context(connection)
                        continue
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        pool.submit(answer)
        error = refused(f"zookeeper://127.0.0.1:{listener.getsockname()[1]}?timeout={BOUND:g}")
        listener.shutdown(socket.SHUT_RDWR)
    assert type(error) is WrongAddress
    assert "ZooKeeper's protocol" in str(error)


def test_a_server_that_hangs_and_is_then_started_again(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nobody listens for a moment is no reason to give up, where a server did."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", 0.2)
    faults: list[Fault | None] = []

    def looking(*args: Any) -> Fault | None:
        faults.append(look(*args))
        if len(faults) == 1:
            zookeeper_server.kill()
        elif len(faults) == 2:
            zookeeper_server.heal()
        return faults[-1]

    monkeypatch.setattr(handshake, "look", looking)
    access = Access.parse(zookeeper_server.url(), {})
    zookeeper_server.pause()
    assert handshake.shortest_session(access, Deadline.after(BOUND)) > 0.0
    assert faults[1] is not None
    assert faults[1].lasting


def test_an_ensemble_that_elects_its_leader(zookeeper_ensemble: ZooKeeperServer) -> None:
    """Its members end every connection meanwhile; opening waits for them."""
    for member in (1, 2):
        zookeeper_ensemble[member].kill()
    until(
        lambda: "not currently serving" in zookeeper_ensemble.ask("srvr"),
        "the member that is left has no quorum",
    )
    url, cluster = f"{zookeeper_ensemble.url()}?timeout={BOUND:g}", f"c{uuid.uuid4().hex}"
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_backend, url, cluster=cluster)
        zookeeper_ensemble.heal()
        with opening.result() as backend:
            backend.commit(Create("k", b""))


def test_a_server_that_hangs_for_a_while(
    zookeeper_server: ZooKeeperServer, looked: threading.Event
) -> None:
    """Opening waits for it until its timeout, and not for one round."""
    access = Access.parse(zookeeper_server.url(), {})
    zookeeper_server.pause()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(handshake.shortest_session, access, Deadline.after(BOUND))
        assert looked.wait(BOUND)
        zookeeper_server.resume()
        assert asking.result() > 0.0


@pytest.mark.parametrize("dead", ["silent", "refuses"])
def test_one_address_of_a_name_is_enough(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    """Wherever it stands: the name of an ensemble often has the addresses of all its members."""
    monkeypatch.setattr(handshake, "ANSWER_TIMEOUT", 0.2)
    access = Access.parse(zookeeper_server.url(), {})
    with socket.create_server(("127.0.0.1", 0)) as mute:
        other = mute.getsockname() if dead == "silent" else ("127.0.0.1", 1)
        addresses = [other, *zookeeper_server.endpoints]
        monkeypatch.setattr(handshake, "resolve", lambda *args: addresses)
        assert handshake.shortest_session(access, Deadline.after(BOUND)) > 0.0


def test_one_endpoint_of_several_is_enough(zookeeper_server: ZooKeeperServer) -> None:
    """Endpoints that are down, or not known, are passed over."""
    (host, port) = zookeeper_server.endpoints[0]
    url = f"zookeeper://127.0.0.1:1,no-such-host.invalid:7,{host}:{port}"
    with open_backend(url, cluster=f"c{uuid.uuid4().hex}") as backend:
        backend.commit(Create("k", b""))
        assert contents(backend) == {"k": b""}


def test_the_default_root(start_zookeeper: Callable[..., Any], client: Any) -> None:
    """Without a path everything is below /jrs, which is created; nothing else is."""
    server = start_zookeeper()
    bare = client(server.endpoints[0])
    error = refused(server.url(), create=False)
    assert isinstance(error, InvalidInput)
    assert bare.get_children("/") == ["zookeeper"]
    with open_backend(server.url(), cluster="one") as backend:
        assert backend.url == server.url()
    assert sorted(bare.get_children("/")) == ["jrs", "zookeeper"]
    assert bare.get_children("/jrs") == ["one"]


def test_a_path_that_does_not_exist(zookeeper_server: ZooKeeperServer, bare: Any) -> None:
    """A path is not guessed at: it says how to create it, and created it is good."""
    path = f"made-{uuid.uuid4().hex}/below"
    for create in (True, False):
        error = refused(zookeeper_server.url(path), create=create)
        assert isinstance(error, InvalidInput)
        assert f"create /{path}" in str(error)
    assert bare.exists(f"/{path}") is None
    bare.create(f"/{path}", b"", makepath=True)
    assert isinstance(refused(zookeeper_server.url(path), create=False), InvalidInput)
    assert bare.get_children(f"/{path}") == []
    with open_backend(zookeeper_server.url(path), cluster="c") as backend:
        backend.commit(Create("k", b""))
        assert backend.url.endswith(f"/{path}")
    with open_backend(zookeeper_server.url(path), cluster="c", create=False) as backend:
        assert contents(backend) == {"k": b""}
    assert bare.get_children(f"/{path}") == ["c"]


@pytest.mark.parametrize("what", ["root", "cluster", "format", "zookeeper's own"])
def test_what_is_not_ours(zookeeper_server: ZooKeeperServer, bare: Any, what: str) -> None:
    """A path that something else lives in is left as it is."""
    path = f"foreign-{uuid.uuid4().hex}"
    if what == "root":
        bare.create(f"/{path}/brokers/ids", b"", makepath=True)
    elif what == "cluster":
        bare.create(f"/{path}/default", b"data", makepath=True)
    elif what == "format":
        bare.create(f"/{path}/default/format", b"no json", makepath=True)
    else:
        path = "zookeeper"
    before = sorted(bare.get_children(f"/{path}"))
    for create in (True, False):
        error = refused(zookeeper_server.url(path), create=create)
        assert isinstance(error, InvalidInput)
        assert "another program" in str(error)
    assert before == sorted(bare.get_children(f"/{path}"))


def test_a_newer_format(zookeeper_server: ZooKeeperServer, bare: Any) -> None:
    """What a newer jrs made is refused by name, and nothing is guessed."""
    path = f"newer-{uuid.uuid4().hex}"
    data = json.dumps({"format": "jrs", "version": 99}).encode()
    bare.create(f"/{path}/default/format", data, makepath=True)
    error = refused(zookeeper_server.url(path))
    assert isinstance(error, UnsupportedVersion)
    assert "99" in str(error)


def test_many_open_the_same_new_cluster(zookeeper_server: ZooKeeperServer, bare: Any) -> None:
    """The first one makes it, and all of them have it."""
    path = f"race-{uuid.uuid4().hex}"
    bare.create(f"/{path}", b"")

    def begin(number: int) -> None:
        with open_backend(zookeeper_server.url(path), cluster="c") as backend:
            backend.commit(Create(f"k/{number}", b""))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, range(8)))
    with open_backend(zookeeper_server.url(path), cluster="c") as backend:
        assert len(contents(backend)) == 8


@pytest.mark.parametrize(
    "url",
    ["zookeeper://", "zookeeper:///path", "zookeeper://h:0", "zookeeper://h:port",
     "zookeeper://h?colour=red", "zookeeper://h/a b", "zookeeper://h,h", "zookeeper://h?timeout=x",
     "zookeeper://h?auth=magic", "zookeeper://user@h", "zookeeper://:sesame@h"],
)  # fmt: skip
def test_urls_that_are_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that makes no sense is refused before any server is asked."""
    monkeypatch.delenv("JRS_BACKEND_PASSWORD", raising=False)
    error = refused(url)
    assert isinstance(error, InvalidInput)
    assert "sesame" not in str(error)


def test_a_server_that_is_too_old() -> None:
    """A server that does not know multi-reads says so by a code, which is put into words."""
    assert "3.6" in str(refusal(-6, "zookeeper://h"))


def test_a_quota_that_is_used_up(start_zookeeper: Callable[..., Any], client: Any) -> None:
    """The error of a commit names the server, the cause, and what to do."""
    server = start_zookeeper(config=["enforceQuota=true"])
    admin = client(server.endpoints[0])
    with open_backend(server.url(), cluster="one") as backend:
        backend.commit(Create("k/a", b""))
        limits = b"count=1,bytes=-1=;byteHardLimit=-1;countHardLimit=1"
        admin.create("/zookeeper/quota/jrs/zookeeper_limits", limits, makepath=True)
        admin.create("/zookeeper/quota/jrs/zookeeper_stats", b"count=9,bytes=9")
        for key in ("k/b", "other/a"):
            with pytest.raises(Unavailable, match=r"^zookeeper://.* quota .* raise it"):
                backend.commit(Create(key, b""))


def test_asking_what_a_server_grants_leaves_no_session(
    start_zookeeper: Callable[..., Any],
) -> None:
    """The session that is made to ask is closed before the answer is used."""
    server = start_zookeeper(config=["minSessionTimeout=30000"])
    access = Access.parse(server.url(), {})
    assert handshake.shortest_session(access, Deadline.after(BOUND)) == 30.0
    until(lambda: "Connections: 1" in server.ask("srvr"), "the server lets go of the connection")
    assert sessions(server) == 0


def sessions(server: ZooKeeperServer) -> int:
    found = re.search(r"Session Sets \(\d+\)/\((\d+)\)", server.ask("dump"))
    assert found is not None
    return int(found[1])


def test_a_closed_handle_leaves_nothing(start_zookeeper: Callable[..., Any], cluster: str) -> None:
    """Its session is gone with it."""
    server = start_zookeeper()
    with open_backend(server.url(), cluster=cluster) as backend:
        assert isinstance(backend, ZooKeeperBackend)
        until(lambda: sessions(server) == 1, "it has one session")
    until(lambda: sessions(server) == 0, "its session is gone")


def test_the_znodes_of_a_cluster(zookeeper_server: ZooKeeperServer, bare: Any) -> None:
    """Everything is where the layout says, and there is no more."""
    cluster = f"c{uuid.uuid4().hex}"
    layout = Layout("/jrs", cluster)
    with open_backend(zookeeper_server.url(), cluster=cluster) as backend:
        backend.commit(Create("results/a", b"1"))
        assert sorted(bare.get_children(layout.home)) == ["format", "latch", "map"]
        # A commit without a fence checks the record that would close the cluster.
        assert sorted(bare.get_children(layout.map)) == ["cluster", "results"]
        assert len(bare.get_children(layout.directory("results"))) == 256
        assert bare.get(layout.record("results/a"))[0] == b"1"
        assert codec.ANY == -1
