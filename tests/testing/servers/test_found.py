"""How a server is found: the environment first, and loudly where there is none."""

from __future__ import annotations

from typing import NoReturn

import pytest

from jrs.testing.servers import EtcdServer, NotOurs, Server, ServerError, ServerMissing
from jrs.testing.servers.fixtures import had, missing
from jrs.testing.servers.found import named_etcd, named_zookeeper


def _refuse(why: str) -> NoReturn:
    raise NotOurs(why)


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_a_named_server_is_used_and_not_hurt(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is healthy and known to lead, and a test that would kill it gets an error."""
    real: Server = request.getfixturevalue(f"{kind}_server")
    monkeypatch.setenv(f"JRS_TEST_{kind.upper()}", real.url())
    find = named_etcd if kind == "etcd" else named_zookeeper
    named = find(1, _refuse)
    assert named is not None
    with named:
        named.heal()

        assert real.endpoints == named.endpoints
        assert named.leader() == 0
        for hurt in (named.kill, named.pause, named.stop):
            with pytest.raises(NotOurs, match="is not ours to"):
                hurt()

    assert real[0].healthy()


def test_too_few_members_are_not_an_ensemble(monkeypatch: pytest.MonkeyPatch) -> None:
    """One named server does not do where three are wanted."""
    monkeypatch.setenv("JRS_TEST_ETCD", "etcd://localhost:1")

    assert named_etcd(3, _refuse) is None


@pytest.mark.parametrize("url", ["etcd://u:p@h", "etcd://h?tls=true", "etcd://h/prefix"])
def test_a_named_server_is_plain(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests put clusters of their own on it, without credentials; anything else is refused."""
    monkeypatch.setenv("JRS_TEST_ETCD", url)
    with pytest.raises(ServerError, match="without TLS, user and prefix"):
        named_etcd(1, _refuse)


def test_a_missing_server_skips_a_test_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is left out unseen where all of them have to run."""

    def find() -> EtcdServer:
        raise ServerMissing("apt-get install etcd-server")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install etcd-server"), had(find):
        pass
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install etcd-server"):
        missing("apt-get install etcd-server")
