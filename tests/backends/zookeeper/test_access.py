"""Access: TLS, users, and to whom everything belongs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl_credential

from jrs.backends.zookeeper import close_session
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.protocol import connection
from jrs.backends.zookeeper.protocol.access import Access
from jrs.contract.backend import Backend
from jrs.contract.errors import AccessDenied, InvalidInput, JrsError, Unavailable
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead
from jrs.testing.servers import Proxy, ZooKeeperServer
from jrs.testing.servers.certificates import make_certificates
from jrs.testing.servers.fixtures import had
from jrs.testing.servers.found import find_zookeeper
from tests.backends.zookeeper.support import campaign_of, end_leader, session_of
from tests.support import BOUND, until

SECRET = "open-sesame"
Open = Callable[..., ZooKeeperBackend]
Start = Callable[..., ZooKeeperServer]


@pytest.fixture(scope="module")
def checks_users() -> Iterator[ZooKeeperServer]:
    """A server that checks users itself, by SASL."""
    with had(lambda: find_zookeeper(users={"owner": SECRET})) as server:
        yield server


@pytest.fixture(scope="module")
def over_tls() -> Iterator[ZooKeeperServer]:
    with had(lambda: find_zookeeper(tls=True)) as server:
        yield server


def as_user(monkeypatch: pytest.MonkeyPatch, name: str | None, password: str = SECRET) -> None:
    """Put a user and a password into the environment."""
    for variable, value in (("USER", name), ("PASSWORD", password)):
        if name is None:
            monkeypatch.delenv(f"JRS_BACKEND_{variable}", raising=False)
        else:
            monkeypatch.setenv(f"JRS_BACKEND_{variable}", str(value))


def every_path(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from every_path(client, f"{path}/{name}")


def refused(url: str, **options: Any) -> JrsError:
    """Return the error of opening `url`: in one line, and without the secret."""
    with pytest.raises(JrsError) as caught:
        open_backend(url, **options)
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said
    return caught.value


def use(backend: Backend) -> None:
    """Do a little of everything."""
    with backend, backend.watch("") as watch:
        backend.commit(Create("k/a", b"1"), Create("loose", b""))
        with lead(backend, ttl=60.0) as leadership:
            backend.commit(Create("k/b", b"2"), fence=leadership.fence)
        assert watch.wait(BOUND)
        assert contents(backend) == {"k/a": b"1", "k/b": b"2", "loose": b""}


# -- users -------------------------------------------------------------------------------------


def test_everything_belongs_to_its_creator(
    zookeeper_server: ZooKeeperServer,
    theirs: str,
    monkeypatch: pytest.MonkeyPatch,
    handle: Open,
    client: Any,
) -> None:
    """With a user given, each znode is its alone: another user may not read, write or remove it."""
    as_user(monkeypatch, "owner")
    backend = handle(theirs)
    backend.commit(Create("k/a", b"1"), Create("loose", b""))
    endpoint = zookeeper_server.endpoints[0]
    owner = client(endpoint, auth_data=[("digest", f"owner:{SECRET}")])
    other = client(endpoint, auth_data=[("digest", "other:word")])
    with lead(backend):
        paths = list(every_path(owner, backend._planner.layout.home))
        assert len(paths) > 2 * 256
        assert any("/latch/" in path for path in paths)
        identity = make_digest_acl_credential("owner", SECRET)
        for path in paths:
            (entry,), _ = owner.get_acls(path)
            assert (entry.perms, entry.id.scheme, entry.id.id) == (31, "digest", identity), path
    chosen = [path for path in paths if "/latch/" not in path and owner.exists(path)]
    for path in [*chosen[:20], *(one for one in chosen if one.endswith(("/a", "/epoch")))]:
        for attempt in (
            partial(other.get, path),
            partial(other.get_children, path),
            partial(other.set, path, b"mine"),
            partial(other.create, f"{path}/mine", b""),
        ):
            with pytest.raises(NoAuthError):
                attempt()


@pytest.mark.parametrize(
    ("name", "password"), [("owner", "wrong-word"), ("other", SECRET), (None, "")]
)
def test_a_user_that_is_not_the_owner_is_refused(
    theirs: str,
    monkeypatch: pytest.MonkeyPatch,
    handle: Open,
    cluster: str,
    name: str | None,
    password: str,
) -> None:
    """A wrong password, another user or none: one line that says so."""
    as_user(monkeypatch, "owner")
    handle(theirs).commit(Create("k", b""))
    as_user(monkeypatch, name, password)
    error = refused(theirs, cluster=cluster)

    assert isinstance(error, AccessDenied)
    assert "JRS_BACKEND_PASSWORD" in str(error)


def test_permission_that_was_withdrawn(
    zookeeper_server: ZooKeeperServer, handle: Open, client: Any
) -> None:
    """Every call on a handle whose permissions are taken away says that, and nothing else."""
    backend = handle()
    backend.commit(Create("k/a", b""))
    bare = client(zookeeper_server.endpoints[0], auth_data=[("digest", "admin:word")])
    from kazoo.security import make_digest_acl

    acl = [make_digest_acl("admin", "word", all=True)]
    for path in list(every_path(bare, backend._planner.layout.home))[::-1]:
        bare.set_acls(path, acl)
    for call in (
        lambda: backend.get("k/a"),
        lambda: list(backend.scan("k/")),
        lambda: list(backend.scan("")),
        lambda: backend.commit(Create("k/b", b"")),
        lambda: backend.commit_async(Create("k/b", b"")).result(BOUND),
        lambda: lead(backend),
    ):
        with pytest.raises(AccessDenied):
            call()


def test_a_place_where_nothing_may_be_created(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    """A path that belongs to another user cannot become a cluster."""
    from kazoo.security import make_acl, make_digest_acl

    bare = client(zookeeper_server.endpoints[0], auth_data=[("digest", "admin:word")])
    acl = [make_digest_acl("admin", "word", all=True), make_acl("world", "anyone", read=True)]
    bare.create("/theirs", b"", acl=acl)
    as_user(monkeypatch, "owner")

    assert isinstance(refused(zookeeper_server.url("theirs")), AccessDenied)


def test_sasl(checks_users: ZooKeeperServer, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that checks users itself: the right one does everything, any other one is refused,
    and a guardian ends the sessions of the dead there, too."""
    server = checks_users
    monkeypatch.setenv("JRS_BACKEND_AUTH", "sasl")
    as_user(monkeypatch, "owner")
    use(open_backend(server.url(), cluster=cluster))
    with open_backend(server.url(), cluster=cluster) as backend:
        assert isinstance(backend, ZooKeeperBackend)
        leadership = lead(backend, ttl=10.0)
        end_leader(leadership, backend, close_session.ender(backend._access.config()))
        assert leadership.lost.wait(BOUND)
        leadership.resign()
    for name, password in (("owner", "wrong-word"), ("other", SECRET)):
        as_user(monkeypatch, name, password)
        assert isinstance(refused(server.url()), AccessDenied)
    for user in ("owner", None):
        monkeypatch.setenv("JRS_BACKEND_AUTH", "digest")
        as_user(monkeypatch, user)
        assert isinstance(refused(server.url()), AccessDenied)


def test_sasl_over_cuts(
    checks_users: ZooKeeperServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost at any step of a login is made again; kazoo would give up."""
    as_user(monkeypatch, "owner")
    with Proxy(checks_users.endpoints[0]) as proxy:
        url = f"{checks_users.url(endpoints=[proxy.endpoint])}?auth=sasl&timeout={BOUND}"
        with open_backend(url, cluster=cluster) as backend:
            assert isinstance(backend, ZooKeeperBackend)
            backend.commit(Create("k", b""))
            protocol = backend._connection._protocol
            session = backend._connection.session
            submit, sent, fatal, what = protocol._submit, 0, 0, ""

            def step(*request: Any) -> None:
                nonlocal sent
                sent += 1
                if sent != fatal:
                    submit(*request)
                    return
                if what == "answer":
                    proxy.freeze(requests=False)
                    submit(*request)
                    proxy.wait_until_held(BOUND)
                proxy.cut()
                proxy.restore()
                if what == "request":
                    submit(*request)

            protocol._submit = step
            # The steps are to connect, to ask for a challenge, and to answer it.
            for fatal, what in itertools.product((1, 2, 3), ("request", "answer")):  # noqa: B007
                sent = 0
                proxy.cut()
                proxy.restore()
                assert backend.get("k") is not None
                assert sent == fatal + 3
            assert session == backend._connection.session
            with lead(backend, ttl=60.0):
                pass


def test_a_password_that_is_good_again(
    checks_users: ZooKeeperServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle that the server refused for a while logs in again; kazoo would stay closed."""
    server = checks_users
    as_user(monkeypatch, "owner")
    with open_backend(f"{server.url()}?auth=sasl&timeout={BOUND}", cluster=cluster) as backend:
        assert isinstance(backend, ZooKeeperBackend)
        backend.commit(Create("k", b""))
        options = backend._connection._protocol.sasl_options
        options["password"] = "wrong-word"
        server.kill()
        server.start()
        until(lambda: backend._connection._refused is not None, "it is refused")
        options["password"] = SECRET

        assert backend.get("k") is not None


def test_digest_alone(start_zookeeper: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants any credentials takes ours, and refuses a client without any."""
    server = start_zookeeper(digest_only=True)
    assert isinstance(refused(server.url()), AccessDenied)
    as_user(monkeypatch, "owner")
    use(open_backend(server.url()))


@pytest.mark.parametrize("value", ["kerberos", ""])
def test_an_unknown_scheme(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme that does not exist is refused by name, in the URL and in the environment."""
    assert isinstance(refused(f"zookeeper://127.0.0.1:1?auth={value}"), InvalidInput)
    monkeypatch.setenv("JRS_BACKEND_AUTH", value)
    assert isinstance(refused("zookeeper://127.0.0.1:1"), InvalidInput)


# -- TLS ---------------------------------------------------------------------------------------


def test_tls(over_tls: ZooKeeperServer, cluster: str, tmp_path: Path) -> None:
    """Over TLS everything works; with a wrong authority or without TLS it says what is wrong."""
    host, port = over_tls.endpoints[0]
    use(open_backend(over_tls.url(), cluster=cluster))
    foreign = make_certificates(tmp_path)
    for url, words in (
        (f"zookeeper://{host}:{port}?timeout=600", "TLS"),
        (f"zookeeper://{host}:{port}?ca={foreign.ca}", "not trusted"),
        (f"zookeeper://{host}:{port}?tls=true", "not trusted"),
    ):
        error = refused(url)
        assert isinstance(error, Unavailable)
        assert words in str(error)


def test_the_host_name_is_compared(
    over_tls: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good certificate of another host is refused; kazoo by itself would take it."""
    server = over_tls
    assert server.certificates is not None
    port = server.endpoints[0][1]
    import socket

    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: look_up("127.0.0.1", *rest, **more),
    )
    lax = KazooClient(
        hosts=f"elsewhere.example:{port}", use_ssl=True, ca=str(server.certificates.ca)
    )
    lax.start()
    lax.stop()
    lax.close()

    error = refused(f"zookeeper://elsewhere.example:{port}?ca={server.certificates.ca}&timeout=600")
    assert isinstance(error, Unavailable)


def test_mutual_tls(start_zookeeper: Start, tmp_path: Path) -> None:
    """A client's certificate is shown where the server wants one, by the guardian, too."""
    server = start_zookeeper(mutual_tls=True)
    use(open_backend(server.url()))
    assert server.certificates is not None
    foreign = make_certificates(tmp_path)
    bare = f"zookeeper://{server.url_part}?ca={server.certificates.ca}&timeout=600"
    for url in (bare, f"{bare}&cert={foreign.client_cert}&key={foreign.client_key}"):
        error = refused(url)
        assert isinstance(error, Unavailable)
        assert "client certificate" in str(error)
    with open_backend(server.url()) as backend:
        assert isinstance(backend, ZooKeeperBackend)
        leadership = lead(backend, ttl=10.0)
        end_leader(leadership, backend, close_session.ender(backend._access.config()))
        assert leadership.lost.wait(BOUND)
        leadership.resign()


def test_certificates_that_are_renewed_are_read_again(start_zookeeper: Start) -> None:
    """The servers get a new authority, and so does the client; no handle has to be opened again.
    In the middle of that, the client's certificate and key do not fit."""
    server = start_zookeeper(mutual_tls=True)
    files, keystore = server.certificates, server._keystore
    assert files is not None
    assert keystore is not None
    with open_backend(f"{server.url()}&timeout={BOUND}", cluster="renewed") as backend:
        assert isinstance(backend, ZooKeeperBackend)
        backend.commit(Create("k", b""))
        tls = backend._access.tls
        assert tls is not None
        server.kill()
        until(lambda: not backend._connection.connected, "the connection is lost")
        before, old = tls.get(), files.client_key.read_bytes()
        make_certificates(files.ca.parent)
        keystore.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
        new = files.client_key.read_bytes()
        files.client_key.write_bytes(old)
        assert tls.get() is before
        files.client_key.write_bytes(new)
        server.heal()

        assert backend.get("k") is not None
        assert tls.get() is not before


def test_tls_to_a_server_without(zookeeper_server: ZooKeeperServer) -> None:
    """The other way round it says what is wrong as well."""
    error = refused(f"zookeeper://{zookeeper_server.url_part}?tls=true&timeout=600")
    assert isinstance(error, Unavailable)
    assert "TLS" in str(error)


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    """Files that are no certificates are named, before anything is connected to."""
    files = make_certificates(tmp_path)
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for query in (
        f"ca={junk}",
        f"ca={files.ca}&cert={junk}&key={files.client_key}",
        f"ca={files.ca}&cert={files.client_cert}&key={files.key}",
        f"ca={files.ca}&cert={files.client_cert}&key={tmp_path / 'missing.pem'}",
    ):
        assert isinstance(refused(f"zookeeper://127.0.0.1:1?{query}"), InvalidInput)


def test_many_in_flight_over_tls(
    over_tls: ZooKeeperServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TLS has decrypted already is read at once: no reply waits there for the next one."""
    # A reply that waits does so for a third of the session, unless the silence is noticed.
    monkeypatch.setattr(connection, "_SILENCE", 3600.0)
    with open_backend(f"{over_tls.url()}&timeout={BOUND}", cluster=cluster) as backend:
        backend.commit(Create("k/first", b""))
        big = b"x" * 100_000
        backend.commit(*(Create(f"big/{number}", big) for number in range(9)))
        for round_ in range(10):
            futures = [backend.commit_async(Create(f"k/{round_}-{n}", b"")) for n in range(50)]
            for future in futures:
                future.result(BOUND)
        for _ in range(5):
            assert len(list(backend.scan("big/"))) == 9


# -- secrets -----------------------------------------------------------------------------------


def test_kazoo_logs_credentials(zookeeper_server: ZooKeeperServer, client: Any) -> None:
    """The trap: with debugging on, the password is in the log."""
    lines: list[str] = []
    logger = logging.getLogger("kazoo-trap")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(_Into(lines))
    client(zookeeper_server.endpoints[0], auth_data=[("digest", f"u:{SECRET}")], logger=logger)

    assert SECRET in "\n".join(lines)


def test_nothing_secret_is_logged(
    handle: Open, theirs: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a user configures for logging: no password, and no session's either."""
    lines: list[str] = []
    root = logging.getLogger()
    into = _Into(lines)
    monkeypatch.setattr(root, "level", 1)
    root.addHandler(into)
    ours = logging.getLogger("jrs.backends.zookeeper")
    level = ours.level
    ours.setLevel(1)
    try:
        as_user(monkeypatch, "owner")
        by_proxy = theirs.replace(theirs.split("/")[2], "{}:{}".format(*proxy.endpoint))
        backend = handle(by_proxy)
        with lead(backend, ttl=60.0) as leadership:
            session = session_of(leadership)
            connections = backend._connection, campaign_of(leadership)
            proxy.cut()
            until(lambda: not any(one.connected for one in connections), "the loss of both")
            proxy.restore()
            backend.get("k")
        as_user(monkeypatch, "owner", "wrong")
        with pytest.raises(AccessDenied):
            handle(theirs)
    finally:
        root.removeHandler(into)
        ours.setLevel(level)
    text = "\n".join(lines)

    assert "Connecting to" in text
    assert SECRET not in text
    assert session[1].hex() not in text
    assert SECRET not in repr(backend._access)


class _Into(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(1)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{record.getMessage()} {record.exc_text or ''}")


def test_an_access_survives_its_config(tmp_path: Path) -> None:
    """A guardian gets all that it needs to connect as its master does."""
    files = make_certificates(tmp_path)
    environment = {"JRS_BACKEND_USER": "u", "JRS_BACKEND_PASSWORD": SECRET}
    for url in (
        "zookeeper://h1:1,h2/path",
        f"zookeeper://[::1]:7?ca={files.ca}",
        f"zookeeper://h?auth=sasl&cert={files.client_cert}&key={files.client_key}&ca={files.ca}",
    ):
        access = Access.parse(url, environment)
        again = Access.from_config(access.config())
        assert again.address.endpoints == access.address.endpoints
        assert again.address.tls == access.address.tls
        assert again.auth_data == access.auth_data
        assert again.sasl_options == access.sasl_options
        assert (again.tls is None) == (access.tls is None)
