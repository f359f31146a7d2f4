"""The private names of kazoo that its connection is built on.

kazoo keeps no promise about them. If one is gone: read what replaced it in kazoo's source, follow
it in `backends/zookeeper/protocol`, and raise the bounds of kazoo's version in pyproject.toml once
the tests of this folder pass. Until then the bound keeps the new kazoo out.
"""

from __future__ import annotations

import ast
import inspect
import logging
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

PROTOCOL = Path(__file__).parents[3] / "backends" / "zookeeper" / "protocol"

CLIENT = {
    "_conn_retry": "how the connection is tried again",
    "_connection": "what runs the connection; replaced by ours",
    "_pending": "requests that were sent, with what their callers wait on",
    "_queue": "requests that were not sent yet",
    "_session_callback": "told of every change of the session",
    "_session_id": "of the session that the next connection continues",
    "_session_passwd": "its password",
}
"""The attributes of a client, and what they are for."""

CONNECTION = {
    "_connect": ("self", "host", "hostip", "port"),
    "_connect_attempt": ("self", "host", "hostip", "port", "retry"),
    "_expand_client_hosts": ("self",),
    "_invoke": ("self", "timeout", "request", "xid"),
    "_read": ("self", "length", "timeout"),
    "_read_response": ("self", "header", "buffer", "offset"),
    "_send_request": ("self", "read_timeout", "connect_timeout"),
    "_socket_error_handling": ("self",),
    "_write": ("self", "msg", "timeout"),
}
"""The methods of a connection that are overridden or called, and their parameters."""

STATE = ("_connection_routine", "_read_sock", "_socket", "_write_sock", "_xid")
"""The attributes of a connection."""


@pytest.fixture
def client() -> KazooClient:
    return KazooClient(hosts="127.0.0.1:1")


@pytest.mark.parametrize("name", CLIENT)
def test_a_client_has(client: KazooClient, name: str) -> None:
    """A client has the attribute."""
    assert hasattr(client, name), __doc__


@pytest.mark.parametrize("name", CONNECTION)
def test_a_connection_has(name: str) -> None:
    """A connection has the method, and it takes what we give it."""
    parameters = tuple(inspect.signature(getattr(ConnectionHandler, name)).parameters)
    assert parameters == CONNECTION[name], __doc__


@pytest.mark.parametrize("name", STATE)
def test_a_connection_keeps(client: KazooClient, name: str) -> None:
    """A connection has the attribute."""
    made = ConnectionHandler(client, client._conn_retry.copy(), logging.getLogger("kazoo"))
    assert hasattr(made, name), __doc__


def test_no_other_private_name_is_used() -> None:
    """Every private name that is used and not defined by us is in the lists above."""
    used: set[str] = set()
    ours: set[str] = set()
    for path in PROTOCOL.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(base, ast.Name) and base.id == "ConnectionHandler" for base in node.bases
            ):
                used |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            elif isinstance(node, ast.Attribute):
                theirs = isinstance(node.value, ast.Name) and node.value.id == "client"
                stored = isinstance(node.ctx, ast.Store) and not theirs
                (ours if stored else used).add(node.attr)
            elif isinstance(node, (ast.FunctionDef, ast.AnnAssign)):
                ours.add(
                    node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.target)
                )
    private = {name for name in used if name.startswith("_") and not name.endswith("__")}
    known = {*CLIENT, *CONNECTION, *STATE}

    assert known <= private | {"_connection"}
    assert private - known - ours == set()


def test_contributing_counts_them() -> None:
    """CONTRIBUTING.md says how many there are."""
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    counts = len(CLIENT), len(CONNECTION), len(STATE)

    assert (
        "{} private names of kazoo: {} attributes of a client, {} methods and {} attributes "
        "of a connection".format(sum(counts), *counts)
    ) in text
