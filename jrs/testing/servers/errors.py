"""What can be wrong with a server for tests.

::

    ServerError               the root
    ├── ServerMissing         there is no way to run one here; says what to install
    ├── ServerUnhealthy       it was started and did not become healthy; ends with its log's tail
    └── NotOurs               it was only named to us: it can be used, not killed
"""

from __future__ import annotations

from jrs.contract.errors import JrsError


class ServerError(JrsError):
    """The root of what the servers for tests raise."""


class ServerMissing(ServerError):
    """No server can be run here. The message says what to install."""


class ServerUnhealthy(ServerError):
    """A server did not become healthy in time, or ended. The message holds the end of its log."""

    def __init__(self, what: str, log: str) -> None:
        self.log = log
        super().__init__(f"{what}; its log ends:\n{log or '(it is empty)'}")


class NotOurs(ServerError):
    """The server was named by the environment, not started by us, so it cannot be hurt."""
