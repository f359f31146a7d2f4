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
from jrs.sidecar.table import Role

_LEAST = 16
"""Characters of a token."""
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_CERTIFICATE = "certificate:"
"""In a line of the token file: what is before the name of a certificate's owner."""
LINK_LASTS = 60.0
"""Seconds for which a one-time link can be opened."""
SESSION_LASTS = 12 * 3600.0
"""Seconds for which a browser stays logged in."""
_MOST_USED = 10_000
_LINK, _SESSION = "link", "session"


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


_NO_TOKEN = Caller("", Role.READ)


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
        digest, found = digest_of(token), None
        for caller in self.callers():
            if caller.token and hmac.compare_digest(caller.token, digest):
                found = caller
        return found

    def callers(self) -> tuple[Caller, ...]:
        """Return who is in the file now.

        Raises:
            InvalidInput: as `caller`.
        """
        self.check()
        return self._callers

    def owner(self, name: str) -> Caller | None:
        """Return the owner of the certificate with that name; None if no line names it.

        Raises:
            InvalidInput: as `caller`.
        """
        return next((one for one in self.callers() if not one.token and one.name == name), None)

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


class Sessions:
    """One-time links, and the browsers that came by one.

    Each is a text that is signed with a key which follows from its caller's token. So all servers
    with the same token file know it, and it ends with its token. That a link was used, or that a
    browser has logged out, is known to the server alone that was asked, until the server ends.

    Args:
        tokens: None where nobody has a token, and so no session is needed.
        clock: of the host; the servers' clocks have to agree.
    """

    def __init__(self, tokens: TokenFile | None, clock: Clock = time.time) -> None:
        self._tokens = tokens
        self._clock = clock
        self._own = secrets.token_bytes(32)
        """The key of callers without a token, who are known by each request."""
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}
        """What is not valid any more, and until when it would be."""

    def link(self, caller: Caller) -> str:
        """Return the code of a link that logs one browser in as `caller`."""
        return self._signed(_LINK, caller, LINK_LASTS)

    def open(self, code: str) -> str | None:
        """Use a link up; return a new session, or None if there is no such link.

        Raises:
            InvalidInput: the token file cannot be used.
        """
        caller = self._caller(_LINK, code)
        if caller is None or not self._use_up(code):
            return None
        return self._signed(_SESSION, caller, SESSION_LASTS)

    def caller(self, session: str) -> Caller | None:
        """Return who has a session, with the role that the token file gives it now; None if there
        is no such session, or if its caller has no token.

        Raises:
            InvalidInput: the token file cannot be used.
        """
        caller = self._caller(_SESSION, session)
        return caller if caller is not None and caller.token else None

    def end(self, session: str) -> None:
        """End a session. Idempotent.

        Raises:
            InvalidInput: the token file cannot be used.
        """
        if self._caller(_SESSION, session) is not None:
            self._use_up(session)

    def _signed(self, kind: str, caller: Caller, lasts: float) -> str:
        said = f"{kind}.{self._clock() + lasts:.0f}.{secrets.token_urlsafe(16)}"
        return f"{said}.{self._signature(said, caller)}"

    def _signature(self, said: str, caller: Caller) -> str:
        return hmac.new(
            caller.token or self._own, said.encode(errors="replace"), hashlib.sha256
        ).hexdigest()

    def _caller(self, kind: str, text: str) -> Caller | None:
        said, _, signature = text.rpartition(".")
        found = None
        for caller in (*(self._tokens.callers() if self._tokens is not None else ()), _NO_TOKEN):
            mine = self._signature(said, caller) if caller.token or caller is _NO_TOKEN else ""
            if mine and hmac.compare_digest(mine.encode(), signature.encode(errors="replace")):
                found = caller
        if found is None or not said.startswith(f"{kind}.") or _until(said) < self._clock():
            return None
        with self._lock:
            return None if text in self._used else found

    def _use_up(self, text: str) -> bool:
        """Make a valid text invalid from now on; return whether it was valid until now."""
        now = self._clock()
        with self._lock:
            for old in [old for old, until in self._used.items() if until < now]:
                del self._used[old]
            while len(self._used) >= _MOST_USED:
                del self._used[next(iter(self._used))]
            is_new = text not in self._used
            self._used[text] = _until(text)
        return is_new


def _until(text: str) -> float:
    return float(text.split(".")[1])
