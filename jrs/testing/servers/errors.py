"""The errors of servers for tests.

::

    ServerError               the root
    ├── ServerMissing         no server can run here; says what to install
    ├── ServerUnhealthy       it did not become healthy; has the end of its log
    └── NotOurs               the environment named it: it can be used, not killed
"""

from __future__ import annotations

from jrs.contract.errors import JrsError


class ServerError(JrsError):
    """The root of the errors of servers for tests."""


class ServerMissing(ServerError):
    """No server can be run here. The message says what to install."""


class ServerUnhealthy(ServerError):
    """A server did not become healthy in time, or ended. The message holds the end of its log."""

    def __init__(self, what: str, log: str) -> None:
        self.log = log
        super().__init__(f"{what}; its log ends:\n{log or '(it is empty)'}")


class NotOurs(ServerError):
    """The environment named the server, and we did not start it, so tests must not hurt it."""
