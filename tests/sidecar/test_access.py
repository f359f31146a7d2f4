"""Who is let in: tokens, roles, hosts, origins, sockets, certificates, links."""

from __future__ import annotations

import re
import stat
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jrs import Client
from jrs.contract.errors import AccessDenied, InvalidInput, Unavailable
from jrs.host.listening import Address
from jrs.sidecar.access import OPEN
from jrs.sidecar.opening import link
from jrs.sidecar.route_form import Role
from jrs.sidecar.routes import ROUTES
from jrs.sidecar.serving import Guards, serve
from jrs.sidecar.tokens import LINK_LASTS, SESSION_LASTS, Caller, Sessions, TokenFile
from jrs.testing.servers.certificates import Certificates
from tests.sidecar.conftest import OPERATE, READ, Served, serving, write_tokens
from tests.support import FakeClock

HTML = "text/html,application/xhtml+xml"


def test_every_route_needs_a_token(served: Served) -> None:
    """Without a token, or with a wrong one, every route, page and metric is refused; the probes
    and what is static are open, and tell nothing."""
    paths = {route.path for route in ROUTES} | {"/", "/jobs", "/jobs/a", "/metrics", "/logout"}
    paths |= {"/v1/openapi.json", "/v1/login-link", "/v1/nope"}
    for path in paths:
        for token in (None, "wrong-0123456789abcdef", OPERATE[:-1], ""):
            for method in ("GET", "POST"):
                answer = served.ask(method, path, token=token)
                assert answer.status == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer")
    for path in ("/livez", "/readyz", "/static/jrs.css"):
        assert served.get(path, token=None).status == 200
    assert set(OPEN) == {"/livez", "/readyz", "/login", "/static/"}


def test_a_reader_changes_nothing(served: Served) -> None:
    """With the role read, each verb is refused before it is looked at."""
    for route in ROUTES:
        if route.method == "POST":
            answer = served.post(route.path, token=READ)
            assert (answer.status, answer.json["title"]) == (403, "The role is too small")
    assert served.get("/v1/jobs", token=READ).json["jobs"] == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.2", "localhost.evil", ""]
)
def test_a_foreign_host(served: Served, host: str) -> None:
    """A name that is not ours is refused, with a token too: names can be rebound."""
    for path in ("/v1/jobs", "/livez", "/"):
        assert served.get(path, Host=host).status in (400, 421)


def test_a_host_that_was_allowed(client: Client, tmp_path: Path) -> None:
    with serving(client, tmp_path, hosts=("jrs.example",)) as served:
        assert served.get("/v1/jobs", Host="jrs.example:443").status == 200
        assert served.get("/v1/jobs", Host="JRS.example").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
    ],
)
def test_a_page_of_another_site(served: Served, headers: dict[str, Any]) -> None:
    """Whatever a page of another site asks is refused, reads too; no answer allows another one."""
    for method in ("GET", "POST"):
        answer = served.ask(method, "/v1/jobs", {} if method == "POST" else None, **headers)
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert served.ask("OPTIONS", "/v1/jobs", **headers).status == 403


def test_an_own_page(served: Served) -> None:
    """A page of ours, and a link from elsewhere that is followed, are answered."""
    host = f"127.0.0.1:{served.port}"
    own = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
    assert served.post("/v1/cluster/unpause", **own).status == 200
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert served.get("/", **followed).status == 200
    assert served.post("/v1/cluster/unpause", **followed).status == 403


def test_headers_of_every_answer(served: Served) -> None:
    """Each answer forbids inline code, frames, sniffing, referrers and caches."""
    for path, token in (("/", OPERATE), ("/v1/jobs", None), ("/static/jrs.js", None)):
        headers = served.get(path, token=token).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


# -- the token file ------------------------------------------------------------------------


def test_tokens_are_rotated(served: Served) -> None:
    """A changed file counts at once: the new token is let in, the old one is not; nor is a browser
    that came by it."""
    session = log_in(served, READ)
    assert served.get("/", token=None, Cookie=session).status == 200
    new = "operate-another-0123456789"
    write_tokens(served.tokens, f"operate {new}\n")

    assert served.get("/v1/jobs", token=new).status == 200
    assert served.get("/v1/jobs", token=OPERATE).status == 401
    assert served.get("/v1/jobs", token=READ).status == 401
    assert served.get("/", token=None, Cookie=session).status == 401


def test_a_token_is_demoted(served: Served) -> None:
    """A browser has the role that the file gives its token now, not the one of its login; a link
    that was made before gives no more."""
    session = log_in(served)
    late = served.post("/v1/login-link").json["path"]
    pause: dict[str, Any] = {"body": {}, "token": None}
    assert served.post("/v1/cluster/pause", Cookie=session, **pause).status == 200
    write_tokens(served.tokens, f"read {OPERATE}\n")
    cookie = served.get(late, token=None).headers["set-cookie"].partition(";")[0]

    for browser in (session, cookie):
        assert served.post("/v1/cluster/unpause", Cookie=browser, **pause).status == 403
        assert served.get("/v1/jobs", token=None, Cookie=browser).status == 200
    write_tokens(served.tokens, f"operate {OPERATE}\n")
    assert served.post("/v1/cluster/unpause", Cookie=session, **pause).status == 200


@pytest.mark.parametrize(
    "text",
    ["", "operate short\n", "root 0123456789abcdef\n", "operate\n", "read certificate:\n",
     "read certificate:a b\noperate certificate:a b\n"],
)  # fmt: skip
def test_a_file_that_turns_bad_lets_nobody_in(served: Served, text: str) -> None:
    """Nobody is let in by what was read before; the answer shows no token."""
    write_tokens(served.tokens, text)
    answer = served.get("/v1/jobs")
    assert (answer.status, answer.json["title"]) == (503, "Nobody can be let in")
    assert OPERATE not in answer.text
    write_tokens(served.tokens, f"operate {OPERATE}\n")
    assert served.get("/v1/jobs").status == 200


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o660, 0o600 | 0o001])
def test_a_file_that_others_read_is_refused(tmp_path: Path, served: Served, mode: int) -> None:
    """At the start, and when its mode changes while the server runs."""
    path = write_tokens(tmp_path / "open", f"operate {OPERATE}\n")
    path.chmod(mode)
    with pytest.raises(InvalidInput, match="chmod g-wx,o="):
        TokenFile(path)
    served.tokens.chmod(mode)
    assert served.get("/v1/jobs").status == 503


def test_its_group_may_read_it(served: Served) -> None:
    """So the files of a Kubernetes Secret are when the pod has an `fsGroup`."""
    served.tokens.chmod(0o440)
    assert served.get("/v1/jobs").status == 200


def test_a_port_needs_a_guard(client: Client, tmp_path: Path) -> None:
    """Without a token file or certificates of clients, no port is opened; TLS alone is no guard."""
    from jrs.sidecar.serving import Tls

    address = Address.of("127.0.0.1:0")
    for guards in (Guards(), Guards(tls=Tls(tmp_path / "c", tmp_path / "k"))):
        with pytest.raises(InvalidInput, match="can be reached by others"):
            serve(client, address, guards, threading.Event())


def test_a_socket_needs_no_token(client: Client, tmp_path: Path) -> None:
    """A socket in a folder has mode 0600, and its user may do everything."""
    import http.client
    import socket

    path = tmp_path / "api.sock"
    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=serve,
        args=(client, Address.of(f"unix:{path}"), Guards(), stop, lambda at: ready.set()),
    )
    thread.start()
    try:
        assert ready.wait(60)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("POST", "/v1/cluster/pause", b"{}")
        answer = connection.getresponse()
        assert (answer.status, b"@" in answer.read()) == (200, True)
        connection.close()
    finally:
        stop.set()
        thread.join()
    assert not path.exists()


# -- browsers ------------------------------------------------------------------------------


def log_in(served: Served, token: str = OPERATE) -> str:
    """Return the cookie of a browser that has followed a link."""
    path = served.post("/v1/login-link", token=token).json["path"]
    answer = served.get(path, token=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert re.search("HttpOnly.*SameSite=strict", cookie)
    return cookie.partition(";")[0]


def test_a_link_works_once(served: Served) -> None:
    """It logs one browser in, with the role of the token that asked for it; nobody else."""
    path = served.post("/v1/login-link", token=READ).json["path"]
    cookie = served.get(path, token=None).headers["set-cookie"].partition(";")[0]
    assert served.get(path, token=None).status == 403

    assert served.get("/", token=None, Cookie=cookie).status == 200
    assert served.post("/v1/cluster/pause", {}, token=None, Cookie=cookie).status == 403
    assert served.get("/", token=None, Cookie=cookie + "x").status == 401
    assert served.post("/logout", token=None, Cookie=cookie).status == 200
    assert served.get("/", token=None, Cookie=cookie).status == 401


@pytest.mark.parametrize(
    "foreign", ['theme={"x":1}', "flag", "a=b c", "x[y]=1", "=", 'q="', "caf\xe9=1", "a=1; a=2"]
)
def test_cookies_of_other_programs(served: Served, foreign: str) -> None:
    """A browser sends those of every port of the host, the older ones first: none hides ours."""
    cookie = log_in(served)
    for sent in (f"{foreign}; {cookie}", f"{cookie}; {foreign}"):
        assert served.get("/", token=None, Cookie=sent).status == 200
    assert served.get("/", token=None, Cookie=foreign).status == 401


def test_a_browser_that_is_not_logged_in(served: Served) -> None:
    """It is told in a page what to do, and what is no page is a problem."""
    answer = served.get("/", token=None, Accept=HTML)
    assert (answer.status, "jrs open" in answer.text) == (401, True)
    assert served.get("/login?code=guess", token=None).status == 403


def test_jrs_open(served: Served, tmp_path: Path) -> None:
    """The link has the role of the file's first token; a wrong token and no server are told."""
    url = f"http://127.0.0.1:{served.port}"
    made = link(url, served.tokens)
    assert served.get(made.removeprefix(url), token=None).status == 303
    wrong = write_tokens(tmp_path / "wrong", "operate 0123456789abcdefgh\n")
    with pytest.raises(AccessDenied, match=r"refuses the token: A token is missing.*status 401"):
        link(url, wrong)
    with pytest.raises(InvalidInput, match="cannot open a socket"):
        link("unix:/run/jrs.sock", served.tokens)


def test_jrs_open_says_what_the_server_says(served: Served) -> None:
    """A name that is not the server's, and a server that can let nobody in, are no matter of the
    token."""
    with pytest.raises(InvalidInput, match=r"start jrs serve with --allow-host NAME \(status 421"):
        link(f"http://0.0.0.0:{served.port}", served.tokens)
    url = f"http://127.0.0.1:{served.port}"
    own = write_tokens(served.tokens.with_name("own"), served.tokens.read_text())
    served.tokens.chmod(0o644)
    with pytest.raises(Unavailable, match=r"Nobody can be let in: .*status 503"):
        link(url, own)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b"<h1>Not found</h1>", Unavailable),
        (502, b"[]", Unavailable),
        (200, b"[]", Unavailable),
        (403, b"", AccessDenied),
    ],
)
def test_jrs_open_at_another_program(
    tmp_path: Path, status: int, body: bytes, error: type[Exception]
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None:
            """Say nothing."""

    tokens = write_tokens(tmp_path / "tokens", f"operate {OPERATE}\n")
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(error, match=r"does not answer as jrs serve does|refuses the token"):
            link(f"http://127.0.0.1:{server.server_port}", tokens)
        thread.join()


def test_links_and_sessions_end() -> None:
    """A link lasts a minute, a session half a day."""
    clock = FakeClock()
    sessions = Sessions(clock)
    caller = Caller("me", Role.READ)
    late, code = sessions.link(caller), sessions.link(caller)
    session = sessions.open(code) or ""
    assert sessions.caller(session) == caller
    clock.now += LINK_LASTS + 1
    assert sessions.open(late) is None
    clock.now += SESSION_LASTS
    assert sessions.caller(session) is None


def test_tokens_are_not_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """What is logged says who has done what, and no token, link or cookie."""
    caplog.set_level(0)
    session = log_in(served)
    served.post("/v1/cluster/pause", {"reason": "secret-reason"})
    served.get("/v1/jobs?status=x")
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "ops: POST /v1/cluster/pause: 200" in logged
    for secret in (OPERATE, session.partition("=")[2], "code=", "secret-reason"):
        assert secret not in logged


# -- certificates --------------------------------------------------------------------------


def made_by_openssl(ca: Path, subject: str, folder: Path) -> tuple[Path, Path]:
    """Return a client's certificate, and its key, of an authority whose key is next to it."""
    cert, key, asked = folder / "openssl.pem", folder / "openssl.key", folder / "openssl.csr"
    commands: tuple[list[str | Path], ...] = (
        ["req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", key, "-out", asked],
        ["x509", "-req", "-in", asked, "-CA", ca, "-CAkey", ca.with_suffix(".key"),
         "-CAcreateserial", "-days", "1", "-out", cert],
    )  # fmt: skip
    for command in commands:
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return cert, key


def test_certificates_of_clients(client: Client, tmp_path: Path) -> None:
    """Over TLS with an authority of clients, the owner of a certificate may operate under its name,
    and a stranger cannot even ask. With a token file as well, its lines give each owner a role, and
    one that it does not name is refused; a token decides first."""
    import http.client
    import ssl

    from jrs.sidecar.serving import Tls
    from jrs.testing.servers.certificates import make_certificates

    made = make_certificates(tmp_path)
    tls = Tls(made.cert, made.key, made.ca)
    stranger = ssl.create_default_context(cafile=str(made.ca))
    ours = made.client_context()
    subject = "/O=jrs/OU=night shift/CN=Ada B. (on call)"
    ada = made.client_context(*made_by_openssl(made.ca, subject, tmp_path))
    unnamed = made.client_context(*made_by_openssl(made.ca, "/O=jrs", tmp_path))

    def ask(context: ssl.SSLContext, method: str = "POST", path: str = "/v1/cluster/pause",
            **headers: str) -> int:  # fmt: skip
        connection = http.client.HTTPSConnection(
            "localhost", served.port, context=context, timeout=60
        )
        try:
            # Two requests of one connection have the same caller.
            for _ in range(2):
                connection.request(method, path, b"{}" if method == "POST" else None, headers)
                answer = connection.getresponse()
                answer.read()
            return answer.status
        finally:
            connection.close()

    def whom() -> list[str]:
        return [entry.by for entry in client.history()]

    with serving(client, tmp_path, tls=tls) as served:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(stranger)
        assert (ask(ours), ask(ada)) == (401, 401)
        read = {"Authorization": f"Bearer {READ}"}
        assert ask(ours, **read) == 403
        write_tokens(served.tokens, (
            f"read {READ}\nread certificate:jrs test client\n"
            "operate certificate:Ada B. (on call)\n"
        ))  # fmt: skip
        assert (ask(ours), ask(ours, "GET", "/v1/jobs"), ask(unnamed, "GET", "/v1/jobs")) == (
            403, 200, 401,
        )  # fmt: skip
        assert ask(ada, **read) == 403
        assert whom() == []
        assert ask(ada) == 200
        assert whom() == ["Ada B. (on call)"]
        paused = client.paused()
        assert (paused and paused.by) == "Ada B. (on call)"
        named = {"Authorization": "Bearer certificate:Ada B. (on call)"}
        assert ask(ours, **named) == 401
    client.unpause()
    with serving(client, tmp_path, with_tokens=False, tls=tls) as served:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(stranger)
        assert ask(ours) == 200
        assert ask(unnamed, path="/v1/cluster/unpause") == 200
    *_, first, second = whom()
    assert first == "jrs test client"
    assert re.fullmatch("[0-9A-F]+", second)  # It has no name: its serial number.


def test_renewed_certificates(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next connection gets the renewed certificate, and only owners of the present authority's
    come in, also where they name no host. Files that cannot be loaded change nothing."""
    import http.client
    import shutil
    import ssl

    from jrs.sidecar.serving import Tls
    from jrs.testing.servers.certificates import make_certificates

    for name in ("first", "renewed"):
        (tmp_path / name).mkdir()
    first, renewed = make_certificates(tmp_path / "first"), make_certificates(tmp_path / "renewed")
    tls = Tls(tmp_path / "api.pem", tmp_path / "api.key", tmp_path / "ca.pem")
    left = ssl.create_default_context(cafile=str(renewed.ca))
    left.load_cert_chain(first.client_cert, first.client_key)

    def install(made: Certificates) -> None:
        for source, place in zip((made.cert, made.key, made.ca), tls.files, strict=True):
            assert place is not None
            shutil.copyfile(source, place)

    def ask(context: ssl.SSLContext, host: str = "localhost") -> int:
        connection = http.client.HTTPSConnection(host, served.port, context=context, timeout=60)
        try:
            connection.request("GET", "/v1/jobs")
            return connection.getresponse().status
        finally:
            connection.close()

    install(first)
    with serving(client, tmp_path, with_tokens=False, tls=tls) as served:
        assert ask(first.client_context()) == 200
        install(renewed)
        for host in ("localhost", "127.0.0.1"):
            assert ask(renewed.client_context(), host) == 200
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                ask(left, host)
        tls.key.write_text("no key")
        for _ in range(2):
            assert ask(renewed.client_context()) == 200
    (warned,) = [one for one in caplog.messages if "certificates cannot be used" in one]
    assert "no key" not in warned


def test_certificates_that_cannot_be_used(client: Client, tmp_path: Path) -> None:
    from jrs.sidecar.serving import Tls

    tokens = write_tokens(tmp_path / "tokens", f"operate {OPERATE}\n")
    guards = Guards(tokens, Tls(tmp_path / "none", tmp_path / "none"))
    with pytest.raises(InvalidInput, match="certificates cannot be used"):
        serve(client, Address.of("127.0.0.1:0"), guards, threading.Event())


def test_a_key_that_needs_a_password(client: Client, tmp_path: Path) -> None:
    """It is refused: nobody is asked for the password, neither now nor at a renewal."""
    from jrs.sidecar.serving import Tls

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -passout pass:word -subj /CN=localhost -keyout"
    subprocess.run([*command.split(), key, "-out", certificate], check=True, capture_output=True)
    tokens = write_tokens(tmp_path / "tokens", f"operate {OPERATE}\n")
    guards = Guards(tokens, Tls(certificate, key))
    with pytest.raises(InvalidInput, match="certificates cannot be used"):
        serve(client, Address.of("127.0.0.1:0"), guards, threading.Event())
