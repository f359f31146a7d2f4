"""etcd: its configuration, its users, and the questions for its health and its leader.

All questions go to the JSON gateway on each member's client port. So this module needs no client of
etcd, and does not evaluate a backend under test by its own client.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import ssl
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jrs.testing.servers.certificates import Certificates, make_certificates
from jrs.testing.servers.errors import ServerError
from jrs.testing.servers.provisioner import Provisioner, Seat
from jrs.testing.servers.server import Member, Server

_TIMEOUT = 10.0


class EtcdServer(Server):
    """An etcd of one member, or three.

    Args:
        place: where the members run.
        members: 1 or 3.
        tls: serve TLS, with certificates of the module `certificates`.
        mutual_tls: also require a client certificate of the same authority.
        users: passwords by user name; turns authentication on at the first start. ``root`` is
            needed; every other user may read and write every key.
        flags: more flags of etcd, e.g. ``--quota-backend-bytes=16777216``, ``--max-txn-ops=128``,
            ``--auth-token-ttl=2`` (seconds).
        fsync: whether data must survive the machine and not only the process. A `kill` loses
            nothing in either case.
    """

    scheme: ClassVar[str] = "etcd"

    def __init__(
        self,
        place: Provisioner,
        members: int = 1,
        *,
        tls: bool = False,
        mutual_tls: bool = False,
        users: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        fsync: bool = False,
    ) -> None:
        self.users = dict(users or {})
        self._flags = tuple(flags)
        self._fsync = fsync
        self._mutual = mutual_tls
        self._folder = tempfile.TemporaryDirectory(prefix="jrs-etcd-")
        self._files: Path | None = None
        self.certificates: Certificates | None = None
        self._context: ssl.SSLContext | None = None
        if tls or mutual_tls:
            self._files = Path(self._folder.name)
            self.certificates = make_certificates(self._files)
            self._context = self.certificates.client_context()
        super().__init__(place, members)

    def _url_options(self) -> dict[str, str]:
        return {} if self.certificates is None else self.certificates.url_options(self._mutual)

    def version(self) -> str:
        """Return the version of the first member, e.g. ``3.4.23``."""
        return str(self._call(self.members[0].seat, "GET", "/version", _TIMEOUT)["etcdserver"])

    def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        member: int = 0,
        user: str | None = None,
        timeout: float = _TIMEOUT,
    ) -> dict[str, Any]:
        """POST to the gateway of a member: ``ask("/v3/kv/range", {"key": …})``, keys in base64.

        Args:
            user: the user to log in as, one of `users`.
            timeout: seconds for each request.

        Raises:
            ServerError: the member answered with an error.
            OSError: the member could not be reached within `timeout` seconds.
        """
        seat = self.members[member].seat
        token = None
        if user is not None:
            login = {"name": user, "password": self.users[user]}
            token = self._post(seat, "/v3/auth/authenticate", login, timeout)["token"]
        return self._post(seat, path, body, timeout, token)

    def enable_auth(self, users: Mapping[str, str]) -> None:
        """Create these users with their passwords and turn authentication on.

        ``root`` must be among them; every other user may read and write every key.

        Raises:
            ServerError: etcd refused.
        """
        everything = {"key": _encoded(b"\0"), "range_end": _encoded(b"\0")}
        self.ask("/v3/auth/role/add", {"name": "root"})
        self.ask("/v3/auth/role/add", {"name": "everything"})
        self.ask(
            "/v3/auth/role/grant",
            {"name": "everything", "perm": {"permType": "READWRITE", **everything}},
        )
        for name, password in users.items():
            self.ask("/v3/auth/user/add", {"name": name, "password": password})
            role = "root" if name == "root" else "everything"
            self.ask("/v3/auth/user/grant", {"user": name, "role": role})
        self.ask("/v3/auth/enable", {})
        self.users.update(users)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _prepare(self) -> None:
        if self.users:
            self.enable_auth(self.users)

    def _build(self, seats: Sequence[Seat]) -> list[Member]:
        token = uuid.uuid4().hex  # Keeps out members of another ensemble on a port that was ours.
        cluster = ",".join(f"{s.name}=http://{s.peer_host}:{s.peer_port}" for s in seats)
        members = []
        for seat in seats:
            arguments = [
                f"--name={seat.name}",
                f"--listen-client-urls={self._web}://{seat.listen_host}:{seat.listen_port}",
                f"--advertise-client-urls={self._web}://{seat.host}:{seat.port}",
                f"--listen-peer-urls=http://{seat.listen_host}:{seat.peer_port}",
                f"--initial-advertise-peer-urls=http://{seat.peer_host}:{seat.peer_port}",
                f"--initial-cluster={cluster}",
                f"--initial-cluster-token={token}",
                "--initial-cluster-state=new",
                "--logger=zap",
                "--log-level=warn",
                "--bcrypt-cost=4",  # Cheap: the passwords are the tests' own.
                *self._tls_flags(),
                *self._flags,
            ]
            runner = self._place.etcd(seat, arguments, files=self._files, fsync=self._fsync)
            members.append(Member(seat, runner, functools.partial(self._sick, seat)))
        return members

    def _tls_flags(self) -> list[str]:
        if self.certificates is None:
            return []
        files = self.certificates
        flags = [f"--cert-file={files.cert}", f"--key-file={files.key}"]
        if self._mutual:
            flags += ["--client-cert-auth", f"--trusted-ca-file={files.ca}"]
        return flags

    @property
    def _web(self) -> str:
        return "http" if self._context is None else "https"

    def _sick(self, seat: Seat, timeout: float) -> str | None:
        """Return why it is not healthy, or None."""
        try:
            answer = self._call(seat, "GET", "/health", timeout)
        except (OSError, http.client.HTTPException, ValueError, ServerError) as error:
            return f"{type(error).__name__}: {error}"
        return None if str(answer.get("health")) == "true" else f"it says {answer}"

    def _leads(self, member: Member, timeout: float) -> int | None:
        try:
            status = self._post(member.seat, "/v3/maintenance/status", {}, timeout)
        except (OSError, http.client.HTTPException, ValueError, ServerError):
            return None
        leads = int(status.get("leader", 0)) == int(status["header"]["member_id"])
        return int(status["raftTerm"]) if leads else None

    def _post(
        self,
        seat: Seat,
        path: str,
        body: Mapping[str, Any],
        timeout: float,
        token: str | None = None,
    ) -> dict[str, Any]:
        return self._call(seat, "POST", path, timeout, json.dumps(body).encode(), token)

    def _call(
        self,
        seat: Seat,
        method: str,
        path: str,
        timeout: float,
        body: bytes | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        # Not urllib, which would use a proxy from the environment.
        connection = (
            http.client.HTTPConnection(seat.host, seat.port, timeout=timeout)
            if self._context is None
            else http.client.HTTPSConnection(
                seat.host, seat.port, timeout=timeout, context=self._context
            )
        )
        try:
            connection.request(method, path, body, {"Authorization": token} if token else {})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ServerError(f"etcd answered {text!r} to {path}")
        if response.status != 200 and "health" not in answer:
            raise ServerError(f"etcd refused {path}: {answer.get('error', text.decode())}")
        return answer


def _encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()
