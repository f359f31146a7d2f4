"""What jrs asks of a store of objects, on a server of each kind."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from jrs.contract.errors import CorruptRecord, InvalidInput, StorageRefused, Unavailable
from jrs.contract.storage_place import CREDENTIALS
from jrs.recovery.storage.objects import LARGE_AT_ONCE, ONE_COPY, ONE_PUT, Objects
from jrs.recovery.storage.packed_copies import in_threads
from jrs.recovery.storage.probe import probe
from jrs.testing.servers.ports import Ports
from tests.azurite import signed_for_reading
from tests.clouds import SCHEMES, url_of
from tests.recovery.storage.support import Store, objects
from tests.s3 import KEYS, make_account
from tests.support import environment, until


def test_an_object(store: Store) -> None:
    found = objects(store)
    assert found.get("job/a") is None
    assert found.stat("job/a") is None
    assert found.parts("job/a", [(0, 1)]) is None
    found.put("job/a", b"some bytes")

    assert found.get("job/a") == b"some bytes"
    assert found.parts("job/a", [(0, 4), (5, 5)]) == [b"some", b"bytes"]
    at = found.stat("job/a")
    assert at is not None
    assert (at.name, at.size) == ("job/a", 10)
    found.delete(["job/a"])
    assert found.get("job/a") is None


def test_an_empty_object(store: Store) -> None:
    objects(store).put("job/empty", b"")

    assert objects(store).get("job/empty") == b""


@pytest.mark.parametrize("name", ["job/batch=1/x", "job/a b", "job/a+b", "job/ä%20", "job/a~b#c?d"])
def test_names(store: Store, name: str) -> None:
    """Every name comes back as it was given, from a listing as well."""
    objects(store).put(name, b"1")

    assert objects(store).get(name) == b"1"
    assert [one.name for one in objects(store).under("job")] == [name]
    objects(store).copy(name, f"{name}.2", 1)
    assert objects(store).get(f"{name}.2") == b"1"
    objects(store).delete([name])
    assert [one.name for one in objects(store).under("job")] == [f"{name}.2"]


def test_listings(store: Store) -> None:
    """A prefix ends at a slash: what merely begins alike is not below it."""
    found = objects(store)
    for name in ("job/data/a", "job/outputs", "job2/data/b", "other/c"):
        found.put(name, b"1")

    assert sorted(one.name for one in found.under("job")) == ["job/data/a", "job/outputs"]
    assert {one.name for one in found.under()} == set(store.names())
    assert found.folders() == ["job", "job2", "other"]
    assert found.folders("job") == ["job/data"]
    assert list(found.under("nothing")) == []


def test_more_objects_than_a_page_has(store: Store) -> None:
    found = objects(store)
    names = [f"many/{number:04}" for number in range(1003)]
    in_threads([lambda name=name: found.put(name, b"1") for name in names])  # type: ignore[misc]  # mypy cannot infer the default

    assert [one.name for one in found.under("many")] == names

    def is_deleted() -> bool:
        try:
            found.delete([*names, "many/none"])
        except Unavailable:
            return False  # No client repeats a POST whose connection was closed: the caller does.
        return True

    until(is_deleted, "all are deleted")
    assert list(found.under("many")) == []


def test_deleting_what_does_not_exist(store: Store) -> None:
    """What another call has deleted is passed over, and what is left is deleted."""
    found = objects(store)
    for name in ("job/a", "job/c"):
        found.put(name, b"1")
    found.delete(["job/a", "job/b", "job/c"])
    found.delete(["job/a"])

    assert store.names() == []


def test_copies(store: Store) -> None:
    found = objects(store)
    found.put("job/a", b"some bytes")
    found.copy("job/a", "other/a", 10)
    found.delete(["job/a"])

    assert found.get("other/a") == b"some bytes"
    with pytest.raises(CorruptRecord, match="job/a is missing"):
        found.copy("job/a", "other/b", 10)


def test_parts_of_a_large_object(store: Store, tmp_path: Path) -> None:
    """Written in parts, from memory and from a file, and copied whole."""
    found, content = objects(store), os.urandom(2 * ONE_PUT + 5)
    (tmp_path / "large").write_bytes(content)
    found.put("job/large", tmp_path / "large")
    found.put("job/bytes", content)
    found.copy("job/large", "other/large", len(content))

    for name in ("job/large", "job/bytes", "other/large"):
        assert found.get(name) == content
    assert found.parts("job/large", [(2 * ONE_PUT - 5, 10)]) == [content[-10:]]


@pytest.mark.parametrize("size", [0, ONE_PUT, 3 * ONE_PUT + 5])
def test_a_copy_of_what_no_server_copies_at_once(store: Store, size: int) -> None:
    """An object whose size is above the limit of one request passes through this host, in parts;
    several of them at once as well."""

    def refuse(method: str, arguments: tuple[object, ...]) -> None:
        if method == "copy":
            raise GenericError("status code: 400 Bad Request: <Code>InvalidRequest</Code>")

    found, content = objects(store), os.urandom(size)
    found.put("job/large", content)
    store.refuse = refuse
    targets = [f"other/{number}" for number in range(LARGE_AT_ONCE + 1)]
    copy = partial(found.copy, "job/large", size=ONE_COPY + 1)
    in_threads([partial(copy, target) for target in targets])

    assert [found.get(target) == content for target in targets] == [True] * len(targets)
    with pytest.raises(Unavailable, match="InvalidRequest"):
        found.copy("job/large", "other/once", ONE_COPY)
    with pytest.raises(CorruptRecord, match="job/none is missing"):
        found.copy("job/none", "other/none", ONE_COPY + 1)


def test_a_copy_whose_object_goes_meanwhile() -> None:
    """Nothing of it is there."""
    store, read = Store(), itertools.count()

    def refuse(method: str, arguments: tuple[object, ...]) -> None:
        if method == "get_range" and next(read) == 2:
            raise FileNotFoundError("job/large")

    found = objects(store)
    found.put("job/large", os.urandom(4 * ONE_PUT))
    store.refuse = refuse
    with pytest.raises(CorruptRecord, match="job/large is missing"):
        found.copy("job/large", "other/large", ONE_COPY + 1)
    assert found.get("other/large") is None


# -- what a server refuses ---------------------------------------------------------------------


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_bucket_that_is_missing(request: pytest.FixtureRequest, scheme: str) -> None:
    found = Objects(url_of(request, scheme, "no-such-bucket"), "test")
    for call in (
        lambda: found.put("job/a", b"1"),
        lambda: found.get("job/a"),
        lambda: found.parts("job/a", [(0, 1)]),
        lambda: list(found.under()),
        lambda: found.delete(["job/a", "job/b"]),
    ):
        with pytest.raises(StorageRefused, match="create the") as raised:
            call()
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidInput, match="create the"):
        probe(found)


@contextmanager
def wrong_keys(scheme: str, folder: Path) -> Iterator[None]:
    variables = {
        "gs": {"GOOGLE_SERVICE_ACCOUNT": str(make_account(folder / "other.json"))},
        "abfss": {"AZURE_STORAGE_ACCOUNT_KEY": "bm90IHRoZSBrZXk="},
    }
    with environment(variables[scheme]):
        yield


@pytest.mark.parametrize("scheme", SCHEMES[1:])  # The server of S3 takes any keys.
def test_wrong_keys(request: pytest.FixtureRequest, scheme: str, tmp_path: Path) -> None:
    url = url_of(request, scheme)
    with wrong_keys(scheme, tmp_path):
        found = Objects(url, "test")
        with pytest.raises(StorageRefused, match="correct the credentials") as raised:
            found.put("job/a", b"1")
        assert "\n" not in str(raised.value)
        with pytest.raises(StorageRefused, match="correct the credentials"):
            found.get("job/a")
        with pytest.raises(InvalidInput, match="correct the credentials"):
            probe(found)


@pytest.mark.parametrize("scheme", SCHEMES[2:])  # The other servers know no such permissions.
def test_a_user_who_may_only_read(
    request: pytest.FixtureRequest, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(request, scheme)
    Objects(url, "test").put("job/a", b"1")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", signed_for_reading())
    found = Objects(url, "test")

    assert found.get("job/a") == b"1"
    with pytest.raises(StorageRefused, match="permit this user to read, write, list and delete"):
        found.put("job/b", b"1")
    with pytest.raises(InvalidInput, match="permit this user") as raised:
        probe(found)
    assert "sig=" not in str(raised.value)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_credentials_at_all(
    request: pytest.FixtureRequest, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client then asks the machine for its own, which this one has not."""
    url = url_of(request, scheme)
    for name in (*KEYS, "GOOGLE_SERVICE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    ports = Ports()
    request.addfinalizer(ports.close)
    nobody = f"127.0.0.1:{ports.take()}"
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, nobody)
    for name in ("AWS_METADATA_ENDPOINT", "AZURE_IDENTITY_ENDPOINT"):
        monkeypatch.setenv(name, f"http://{nobody}/")
    with pytest.raises(InvalidInput, match="no credentials, and this machine has none") as raised:
        probe(Objects(url, "test"))
    assert f"credentials are taken from {CREDENTIALS[scheme]}" in str(raised.value)


def test_azure_may_copy_after_its_answer() -> None:
    """So its copies are not used: what a record names is there whole."""
    store = Store()
    found = Objects("abfss://container@account.dfs.core.windows.net/prefix", "test", store.open)
    found.put("job/a", os.urandom(100))
    found.copy("job/a", "other/a", 10)

    assert store.calls["copy"] == 0
    assert found.get("other/a") == found.get("job/a")
    with pytest.raises(CorruptRecord, match="job/b is missing"):
        found.copy("job/b", "other/b", 10)


def test_a_part_of_a_bulk_delete_is_refused() -> None:
    """Azure answers for each object of the request: that says a number, and no code."""
    store = Store()
    text = "Bulk delete request failed for key a: This request is not authorized. (code: 403)"

    def refuse(method: str, arguments: tuple[object, ...]) -> None:
        if method == "delete":
            raise PermissionError(text)

    store.refuse = refuse
    with pytest.raises(StorageRefused, match="403; permit this user to read, write, list"):
        objects(store).delete(["job/a", "job/b"])
