"""A request: its content, whether it was sent, and its outcome.

kazoo keeps requests while it is not connected and sends them after it has reconnected, long after
the caller got an error. If a write is no longer wanted by then, because its caller has given up or
because it was meant for an earlier connection, an empty write is sent instead. So it is always
known whether a write can have happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
)

from jrs.contract.errors import AccessDenied, JrsError, OutcomeUnknown, Unavailable

from . import codec

_NO_AUTH = {-102, -115, -124}
_REASONS = {
    -6: "the server is older than ZooKeeper 3.6: upgrade it",
    -125: "a quota of the path is used up: raise it (zkCli.sh setquota), or run jrs expire",
    -127: "the server is overloaded and refuses requests for now",
}


class Request:
    """One request, with the interface that kazoo requires of requests and results.

    Args:
        kind: its number in ZooKeeper's protocol.
        body: the content.
        notify: called once with the request, on the thread that reads replies: it must not block.
        path, watcher: kazoo calls the watcher once when the znode may have changed.

    Attributes:
        reply: the answer and the offset of its body.
        error: the reason why there is no answer.
        generation: the connection that it was meant for.
    """

    def __init__(
        self,
        kind: int,
        body: bytes,
        notify: Callable[[Request], None],
        *,
        path: str | None = None,
        watcher: Callable[[Any], None] | None = None,
    ) -> None:
        self.type = kind
        self.path = path
        self.watcher = watcher
        self.sent = False
        self.completed = False
        self.generation = 0
        self.current: Callable[[], int] = int
        self.answered: Callable[[Request], None] = notify
        self.notify = notify
        self.reply: tuple[bytes, int] | None = None
        self.error: Exception | None = None
        self._body = body
        self._canceled = False
        self._turn = threading.Lock()

    def cancel(self) -> bool:
        """Cancel the request; return whether it was not sent yet."""
        with self._turn:
            self._canceled = not self.sent
            return self._canceled

    @property
    def canceled(self) -> bool:
        return self._canceled

    @property
    def lost(self) -> bool:
        """Whether it has no answer because the connection or the session ended."""
        return isinstance(self.error, (ConnectionLoss, SessionExpiredError, AuthFailedError))

    @property
    def expired(self) -> bool:
        """Whether it has no answer because the session ended."""
        gone = isinstance(self.error, SessionExpiredError)
        return gone and not isinstance(self.error, ConnectionClosedError)

    def problem(self, where: str) -> JrsError | None:
        """Return the error for a request without an answer, or None."""
        if self.error is None:
            return None
        if isinstance(self.error, JrsError):
            return self.error
        writes = self.type == codec.MULTI
        if self.lost:
            if writes and self.sent:
                return OutcomeUnknown(f"{where}: the connection was lost before the write was "
                                      "answered")  # fmt: skip
            return Unavailable(f"{where}: not connected; nothing was changed")
        return refusal(getattr(self.error, "code", 0), where)

    # -- what kazoo calls ------------------------------------------------------------------

    def serialize(self) -> bytes:
        with self._turn:
            if self.type == codec.MULTI:
                if self._canceled or self.generation != self.current():
                    return codec.END
                self.sent = True
            return self._body

    def deserialize(self, reply: bytes, at: int) -> tuple[bytes, int]:
        return reply, at

    def set(self, reply: tuple[bytes, int] | None) -> None:
        if self.type == codec.MULTI and not self.sent:
            self.set_exception(ConnectionLoss())
            return
        self.reply = reply
        self.answered(self)

    def set_exception(self, error: KazooException | JrsError) -> None:
        self.error = error
        self.answered(self)

    def __repr__(self) -> str:
        return f"<request of kind {self.type}>"


def refusal(code: int, where: str) -> JrsError:
    """Return the error for a refusal by the server, from its code."""
    if code in _NO_AUTH:
        return AccessDenied(
            f"{where}: no permission, or a wrong user or password: check JRS_BACKEND_USER, "
            "JRS_BACKEND_PASSWORD, and auth=sasl if the server has its own users"
        )
    why = _REASONS.get(code, f"the server refused with code {code}")
    return Unavailable(f"{where}: {why}; nothing was changed")
