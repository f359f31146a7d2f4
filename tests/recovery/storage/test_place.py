"""What a user may name as the storage, and what the probe of objects refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import InvalidInput, StorageRefused, Unavailable
from jrs.contract.storage_place import StoragePlace, place_of
from jrs.recovery.storage.objects import Objects
from jrs.recovery.storage.probe import probe
from tests.recovery.storage.support import Store, objects


def test_folders(tmp_path: Path) -> None:
    for named in (tmp_path, str(tmp_path), tmp_path.as_uri()):
        assert place_of(named) == StoragePlace(tmp_path)


def test_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are no part of what the copies on a host are called by."""
    monkeypatch.setenv("JRS_WORK", str(tmp_path))
    one, other = place_of("s3://bucket//a/b/"), place_of("s3://bucket/a/b?region=eu-west-1")

    assert one.url == "s3://bucket/a/b"
    assert other.url == "s3://bucket/a/b?region=eu-west-1"
    assert one.root == other.root
    assert one.root.parent == tmp_path
    assert place_of("s3://bucket/a").root != one.root
    assert place_of("abfss://container@account.dfs.core.windows.net/a").url.startswith("abfss://")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://bucket/a", "is not known: name a folder"),
        ("S3X://bucket", "is not known"),
        ("s3://", "not a URL of the form s3://BUCKET/PREFIX"),
        ("s3:///prefix", "not a URL of the form"),
        ("s3://bucket/a#b", "not a URL of the form"),
        ("s3://bucket/a/../b", r"with \. or \.\."),
        ("s3://key:secret@bucket/a", "no room for credentials"),
        ("gs://key@bucket/a", "GOOGLE_SERVICE_ACCOUNT"),
        ("s3://bucket/a?secret_access_key=x", "no option 'secret_access_key'"),
        ("gs://bucket/a?region=x", "no option 'region': the options of gs:// are endpoint"),
        ("s3://bucket/a?region", "^$"),
        ("s3://[bucket/a", "not a URL"),
    ],
)
def test_bad_urls(url: str, why: str) -> None:
    if why == "^$":
        place_of(url)  # An option without a value is the store's own affair.
        return
    with pytest.raises(InvalidInput, match=why) as raised:
        place_of(url)
    assert "secret@" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_store_that_works(store: Store) -> None:
    probe(objects(store))

    assert store.names() == []


def test_a_store_that_remembers_what_was_missing() -> None:
    """A gateway that caches: what was asked for before it was written stays missing."""
    store, asked = Store(), set[str]()

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "get" and arguments[0] in asked:
            raise FileNotFoundError("cached")
        if method == "get":
            asked.add(arguments[0])

    store.refuse = refuse
    with pytest.raises(InvalidInput, match="just written cannot be read; name the store itself"):
        probe(objects(store))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>", "create the bucket"),
        ("403 Forbidden: <Error><Code>InvalidAccessKeyId</Code></Error>", "the credentials"),
        ("403 Forbidden: <Error><Code>AccessDenied</Code></Error>", "read, write, list and delete"),
        ("403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>", "clock of this host"),
    ],
)
@pytest.mark.parametrize("method", ["put", "get", "list", "delete"])
def test_a_store_that_refuses(text: str, hint: str, method: str) -> None:
    """Each in one line that says what to do; also if only deleting is refused."""
    store = Store()
    store.fail(1, method, text)
    with pytest.raises(InvalidInput, match=hint) as raised:
        probe(objects(store))
    assert "\n" not in str(raised.value)


def test_a_store_that_does_not_answer() -> None:
    store = Store()
    store.fail(1, "put")
    with pytest.raises(Unavailable, match="does not answer") as raised:
        probe(objects(store))
    assert not isinstance(raised.value, StorageRefused)


def test_a_store_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys, and without the package: what is missing, and no word of an outage."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    with pytest.raises(InvalidInput, match="Missing AccessKeyId; credentials are taken from AWS_"):
        probe(Objects("s3://bucket/a?region=eu-west-1", "test"))
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidInput, match=r"pip install 'jrs\[objects\]'"):
        probe(Objects("s3://bucket/a", "test"))
