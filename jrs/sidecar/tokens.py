"""Tokens, certificates, roles and sessions: who may read, and who may operate."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from pathlib import Path

import attrs

from jrs.contract.clock import Clock
from jrs.contract.errors import InvalidInput
from jrs.host.credentials import opened
from jrs.sidecar.route_form import Role

_LEAST = 16
"""Characters of a token."""
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_CERTIFICATE = "certificate:"
"""In a line of the token file: what is before the name of a certificate's owner."""
LINK_LASTS = 60.0
"""Seconds for which a one-time link can be opened."""
SESSION_LASTS = 12 * 3600.0
"""Seconds for which a browser stays logged in."""
_MOST_SESSIONS = 1000


@attrs.frozen
class Caller:
    """Who makes a request."""

    name: str
    """As the history has it; empty for the user of the socket, who is that of the server."""
    role: Role
    token: bytes = b""
    """The digest of the token by which it is known; empty for the user of the socket, and for the
    owner of a certificate."""

    def may(self, role: Role) -> bool:
        """Return whether it may do what needs `role`."""
        return self.role is Role.OPERATE or role is Role.READ


class TokenFile:
    """A file with lines ``role token [name]`` or ``role certificate:name``, read again whenever it
    has changed.

    Only digests are kept in memory. A file to which others have access, that its group can change,
    or that cannot be read, lets nobody in.

    Raises:
        InvalidInput: from the constructor; the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._callers: tuple[Caller, ...] = ()
        self.check()

    def check(self) -> None:
        """Read the file if it has changed.

        Raises:
            InvalidInput: it cannot be used; nobody is let in.
        """
        with self._lock:
            try:
                self._read()
            except InvalidInput:
                self._seen, self._callers = (), ()
                raise

    def caller(self, token: str) -> Caller | None:
        """Return who has a token; None if nobody has it. Takes as long for each token.

        Raises:
            InvalidInput: the file cannot be used any more.
        """
        return self.by_digest(digest_of(token))

    def by_digest(self, digest: bytes) -> Caller | None:
        """Return who has the token with that digest, with the role that the file gives it now; None
        if nobody has it. Takes as long for each digest.

        Raises:
            InvalidInput: as `caller`.
        """
        self.check()
        found = None
        for caller in self._callers:
            if digest and hmac.compare_digest(caller.token, digest):
                found = caller
        return found

    def owner(self, name: str) -> Caller | None:
        """Return the owner of the certificate with that name; None if no line names it.

        Raises:
            InvalidInput: as `caller`.
        """
        self.check()
        return next((one for one in self._callers if not one.token and one.name == name), None)

    def _read(self) -> None:
        try:
            with opened(self._path, "token file") as file:
                found = os.fstat(file.fileno())
                seen = (found.st_ino, found.st_mtime_ns, found.st_size)
                if seen == self._seen:
                    return
                text = file.read().decode("ascii")
        except UnicodeDecodeError:
            raise InvalidInput(f"the token file {self._path} is not in ASCII") from None
        self._callers = callers_in(text, self._path)
        self._seen = seen


def callers_in(text: str, path: Path) -> tuple[Caller, ...]:
    """Return who is in a token file. A message shows no token.

    Raises:
        InvalidInput: a line has another form, or there is none.
    """
    callers: dict[object, Caller] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"line {number} of the token file {path}"
        caller = _caller_in(line, where)
        known = caller.token or caller.name
        if known in callers:
            what = "token" if caller.token else "certificate"
            raise InvalidInput(f"{where}: that {what} is there already")
        callers[known] = caller
    if not callers:
        raise InvalidInput(f"the token file {path} has no token")
    return tuple(callers.values())


def _caller_in(line: str, where: str) -> Caller:
    role, rest = (*line.split(None, 1), "")[:2]
    words, named = rest.split(), rest.startswith(_CERTIFICATE)
    if role not in tuple(Role) or not words or (len(words) > 2 and not named):
        raise InvalidInput(
            f"{where}: write 'read TOKEN [NAME]' or 'operate TOKEN [NAME]'; or certificate:NAME in "
            "place of the token"
        )
    if named:
        name = rest.removeprefix(_CERTIFICATE).strip()
        if not name:
            raise InvalidInput(f"{where}: write the name of a certificate behind {_CERTIFICATE}")
        return Caller(name, Role(role))
    token, name = words[0], words[-1] if len(words) == 2 else role
    if len(token) < _LEAST:
        raise InvalidInput(f"{where}: a token has at least {_LEAST} characters")
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{where}: a name has 1 to 64 of A-Z a-z 0-9 . _ @ -")
    return Caller(name, Role(role), digest_of(token))


def first_token(path: Path) -> str:
    """Return the first token of a file, for a command that asks a server.

    Raises:
        InvalidInput: the file cannot be used, or has no token.
    """
    TokenFile(path)
    for line in path.read_text("ascii").splitlines():
        words = line.split()
        if words and words[0] in tuple(Role) and not words[1].startswith(_CERTIFICATE):
            return words[1]
    raise InvalidInput(f"the token file {path} has no token")


def digest_of(token: str) -> bytes:
    """Return the digest by which a token is compared."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@attrs.frozen
class _Until:
    caller: Caller
    until: float


class Sessions:
    """One-time links, and the browsers that came by one. In memory: they end with the server."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[bytes, _Until] = {}
        self._sessions: dict[bytes, _Until] = {}

    def link(self, caller: Caller) -> str:
        """Return the code of a link that logs one browser in as `caller`."""
        return self._put(self._links, caller, LINK_LASTS)

    def open(self, code: str) -> str | None:
        """Use a link up; return the id of a new session, or None if there is no such link."""
        caller = self._taken(self._links, code, keep=False)
        return None if caller is None else self._put(self._sessions, caller, SESSION_LASTS)

    def caller(self, session: str) -> Caller | None:
        """Return who has a session; None if there is no such session."""
        return self._taken(self._sessions, session, keep=True)

    def end(self, session: str) -> None:
        """End a session. Idempotent."""
        self._taken(self._sessions, session, keep=False)

    def _put(self, where: dict[bytes, _Until], caller: Caller, lasts: float) -> str:
        secret, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            for key in [key for key, one in where.items() if one.until < now]:
                del where[key]
            while len(where) >= _MOST_SESSIONS:
                del where[next(iter(where))]
            where[digest_of(secret)] = _Until(caller, now + lasts)
        return secret

    def _taken(self, where: dict[bytes, _Until], secret: str, *, keep: bool) -> Caller | None:
        digest = digest_of(secret)
        with self._lock:
            found = where.get(digest) if keep else where.pop(digest, None)
        return None if found is None or found.until < self._clock() else found.caller
