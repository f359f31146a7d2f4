"""ZooKeeper: its configuration, and the questions for its health and its leader, by `srvr`."""

from __future__ import annotations

import functools
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from jrs.testing.servers.certificates import Certificates, make_certificates
from jrs.testing.servers.provisioner import Provisioner, Seat
from jrs.testing.servers.server import Member, Server

_CONFIG = (
    "tickTime=200",
    # The tick also bounds the sessions, to 2 to 20 ticks by default.
    "minSessionTimeout=400",
    "maxSessionTimeout=3600000",
    "initLimit=25",
    # Five seconds, so that a follower on a loaded machine is not given up at once.
    "syncLimit=25",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    "preAllocSize=1024",
    "snapCount=100000",
)


class ZooKeeperServer(Server):
    """A ZooKeeper of one member, or three. Sessions may last 0.4 seconds to an hour.

    Args:
        place: where the members run.
        members: 1 or 3.
        tls: the client port serves TLS, with certificates of the module `certificates`.
        mutual_tls: also require a client certificate of the same authority.
        users: passwords by user name, for SASL's DIGEST-MD5; if given, only clients that log in as
            one of them are accepted.
        digest_only: refuse clients without credentials of the scheme ``digest``. That scheme
            accepts any name and password; only ACLs decide what a user may do.
        config: more lines of zoo.cfg, which override ours.
        properties: Java's system properties, NAME=VALUE.
        fsync: whether data must survive the machine and not only the process. A `kill` loses
            nothing in either case.
    """

    scheme: ClassVar[str] = "zookeeper"

    def __init__(
        self,
        place: Provisioner,
        members: int = 1,
        *,
        tls: bool = False,
        mutual_tls: bool = False,
        users: Mapping[str, str] | None = None,
        digest_only: bool = False,
        config: Sequence[str] = (),
        properties: Sequence[str] = (),
        fsync: bool = False,
    ) -> None:
        self.users = dict(users or {})
        self._config = tuple(config)
        self._digest_only = digest_only
        self._fsync = fsync
        self._mutual = mutual_tls
        self._folder = tempfile.TemporaryDirectory(prefix="jrs-zookeeper-")
        secured = tls or mutual_tls or bool(self.users)
        self._files = Path(self._folder.name) if secured else None
        self.certificates: Certificates | None = None
        self._keystore: Path | None = None
        if tls or mutual_tls:
            files = self.certificates = make_certificates(Path(self._folder.name))
            self._keystore = Path(self._folder.name) / "keystore.pem"
            self._keystore.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
        self._properties = (*self._login(), *properties)
        super().__init__(place, members)

    def _url_options(self) -> dict[str, str]:
        return {} if self.certificates is None else self.certificates.url_options(self._mutual)

    def version(self) -> str:
        """Return the version of the first member, e.g. ``3.8.0``."""
        found = re.search(r"version: ([0-9.]+)", self.ask("srvr"))
        return found[1] if found else ""

    def ask(self, word: str, *, member: int = 0, timeout: float = 10.0) -> str:
        """Return a member's answer to a four-letter word: ``srvr``, ``cons``, ``mntr``, …

        Raises:
            OSError: the member could not be reached within `timeout` seconds.
        """
        return self._ask(self.members[member].seat, word, timeout)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _build(self, seats: Sequence[Seat]) -> list[Member]:
        ensemble = [
            f"server.{number}={seat.peer_host}:{seat.peer_port}:{seat.election_port}"
            for number, seat in enumerate(seats, 1)
        ]
        members = []
        for number, seat in enumerate(seats, 1):
            config = [
                *_CONFIG,
                f"forceSync={'yes' if self._fsync else 'no'}",
                f"clientPortAddress={seat.listen_host}",
                *self._ports(seat),
                *(ensemble if len(seats) > 1 else ()),
                *self._authentication(),
                *self._config,
            ]
            runner = self._place.zookeeper(
                seat, number, config, self._properties, files=self._files
            )
            members.append(Member(seat, runner, functools.partial(self._sick, seat)))
        return members

    def _ports(self, seat: Seat) -> list[str]:
        if self._keystore is None or self.certificates is None:
            return [f"clientPort={seat.listen_port}"]
        return [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={seat.listen_port}",
            f"secureClientPortAddress={seat.listen_host}",
            f"ssl.keyStore.location={self._keystore}",
            f"ssl.trustStore.location={self.certificates.ca}",
            f"ssl.clientAuth={'need' if self._mutual else 'none'}",
            # A port without TLS, for our own questions.
            f"clientPort={seat.listen_plain_port}",
        ]

    def _authentication(self) -> list[str]:
        if not self.users and not self._digest_only:
            return []
        schemes = ["sasl"] * bool(self.users) + ["digest"] * self._digest_only
        return [
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "enforce.auth.enabled=true",
            f"enforce.auth.schemes={','.join(schemes)}",
        ]

    def _login(self) -> list[str]:
        """Write the users to a file, and return the system property that names it."""
        if not self.users:
            return []
        file = Path(self._folder.name) / "jaas.conf"
        users = "\n".join(f'  user_{name}="{word}"' for name, word in self.users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        file.write_text(f"Server {{\n  {module} required\n{users};\n}};\n")
        file.chmod(0o600)
        return [f"java.security.auth.login.config={file}"]

    def _leads(self, member: Member, timeout: float) -> int | None:
        try:
            answer = self._ask(member.seat, "srvr", timeout)
        except OSError:
            return None
        zxid = re.search(r"Zxid: 0x([0-9a-f]+)", answer)
        if zxid is None or not re.search(r"Mode: (leader|standalone)", answer):
            return None
        return int(zxid[1], 16) >> 32  # The upper half is the epoch of its leadership.

    def _sick(self, seat: Seat, timeout: float) -> str | None:
        """Return why it is not healthy, or None."""
        try:
            answer = self._ask(seat, "srvr", timeout)
            # With TLS, that was another port, which it opens first.
            socket.create_connection((seat.host, seat.port), timeout).close()
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None if "Mode:" in answer else f"it says {answer.strip()!r}"

    def _ask(self, seat: Seat, word: str, timeout: float) -> str:
        # Asked in plain text, on a separate port if clients use TLS.
        port = seat.port if self.certificates is None else seat.plain_port
        with socket.create_connection((seat.host, port), timeout) as connection:
            connection.sendall(word.encode())
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return answer.decode(errors="replace")
