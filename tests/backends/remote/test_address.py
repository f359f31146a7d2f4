"""Addresses: whatever is wrong with a URL, its password is in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.remote.address import Address
from jrs.backends.zookeeper.protocol.access import Access
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import redacted
from jrs.store.opening import open_backend

MISSPELLED = [
    "{}://user:s3cr/3t@host:2379",
    "{}://user:s3cr#3t@host",
    "{}://user:s3cr?3t@host",
    "{}://user:12/s3cr3t@host",
    "{}://user:12?s3cr3t@host",
    "{}://user:s3cr?ca=3t@host",
    "{}://us/er:s3cr3t@host",
    "{}://user:s3cr3t@[::1:2379",
    "{}://user:[s3cr3t@host",
    "{}://user:s3cr3t",
    "{}://user:s3cr3t,host",
    "{}:user:s3cr3t@host",
    "{}:/user:s3cr3t@host",
    "{}:///user:s3cr3t@host",
    "{}://[::1:2379",
]


@pytest.mark.parametrize("spelled", MISSPELLED)
@pytest.mark.parametrize("scheme", ["etcd", "zookeeper"])
def test_a_misspelled_url_is_refused_without_its_password(scheme: str, spelled: str) -> None:
    url = spelled.format(scheme)
    for opened in (
        lambda: open_backend(url),
        lambda: Address.parse(url, default_port=1, environment={}),
        lambda: Access.parse(url, {}),
    ):
        with pytest.raises(InvalidInput) as refused:
            opened()
        assert not any(part in str(refused.value) for part in ("s3c", "3t"))


@pytest.mark.parametrize("spelled", MISSPELLED[:10])
def test_what_is_printed_of_it_has_no_part_of_the_password(spelled: str) -> None:
    """Also behind the scheme of a backend that wraps another one, and one that nobody knows."""
    for url in (spelled.format("etcd"), spelled.format("recorded:etcd")):
        assert not any(part in redacted(url) for part in ("s3c", "3t"))
    with pytest.raises(InvalidInput) as refused:
        open_backend(spelled.format("ectd"))
    assert not any(part in str(refused.value) for part in ("s3c", "3t"))


def test_what_is_escaped_is_taken_as_it_is() -> None:
    url = "etcd://us%2Fer:s3c%2Fr%3F%233t%40@h1:7,[::1]/jrs?timeout=3"
    address = Address.parse(url, default_port=1, environment={})

    assert (address.user, address.password) == ("us/er", "s3c/r?#3t@")
    assert address.endpoints == (("h1", 7), ("::1", 1))
    assert redacted(url) == "etcd://h1:7,[::1]/jrs"


def test_a_file_may_have_an_at_sign_in_its_name(tmp_path: Path) -> None:
    """No user is in front of it."""
    ca = tmp_path / "me@here.pem"
    ca.touch()
    url = f"etcd://h1:7,h2/jrs?ca={ca}&timeout=3"
    address = Address.parse(url, default_port=1, environment={})

    assert address.tls is not None
    assert address.tls.ca == ca
    assert redacted(url) == "etcd://h1:7,h2/jrs"
    assert redacted("file:///srv/me@here") == "file:///srv/me@here"


def test_the_container_of_a_storage_on_azure_is_no_user() -> None:
    place = "acct.dfs.core.windows.net/orders"
    assert redacted(f"abfss://raw@{place}?sig=s3c") == f"abfss://raw@{place}"
    assert redacted(f"wasb://raw:s3c@{place}") == f"wasb://{place}"
    assert redacted(f"etcd://raw@{place}") == f"etcd://{place}"
