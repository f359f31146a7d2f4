"""Where jobs may keep their files: only where a new leader takes an older attempt's paths away."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.errors import InvalidInput
from jrs.contract.formats import NEWEST_FORMAT
from jrs.recovery.files.epoch_folders import SINCE_FORMAT
from jrs.recovery.inspect.doctor import examine
from jrs.recovery.master import Master
from jrs.store.opening import open_backend

LOCAL = "1 0 8:1 / / rw,relatime - ext4 /dev/sda rw"
NFS = "rw,vers=4.2,rsize=1048576,hard,proto=tcp,sec=sys"

REFUSED = {
    "sshfs": "fuse.sshfs host:/x rw,user_id=0,group_id=0",
    "nameless fuse": "fuse x rw,user_id=0",
    "cifs": "cifs //host/x rw,vers=3.1.1,cache=strict,actimeo=1",
    "virtiofs": "virtiofs x rw",
    "cached 9p": "9p x rw,cache=mmap,trans=virtio",
    "object store": "fuse.s3fs s3fs rw,user_id=0",
}
CACHED = {
    "nfs by default": f"nfs4 host:/x {NFS}",
    "nfs 3": "nfs host:/x rw,vers=3,addr=10.0.0.1",
    "actimeo=1": f"nfs4 host:/x {NFS},acregmin=1,acregmax=1,acdirmin=1,acdirmax=1",
    "lookupcache=pos": f"nfs4 host:/x {NFS},lookupcache=pos",
}
"""Fit since new leaders make new folders."""
FIT = {
    "lookupcache=none": f"nfs4 host:/x {NFS},lookupcache=none",
    "noac": f"nfs4 host:/x {NFS},noac,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0",
    "nfs 3": "nfs host:/x rw,vers=3,lookupcache=none,addr=10.0.0.1",
    "ceph": "ceph 10.0.0.1:/ rw,name=admin,acl",
    "lustre": "lustre 10.0.0.1@tcp:/x rw",
    "xfs": "xfs /dev/sdb rw",
    "a disk of one host": "fuseblk /dev/sdc1 rw,user_id=0",
    "9p": "9p x rw,trans=virtio",
}


JUICEFS = "fuse.juicefs JuiceFS:x rw,user_id=0,group_id=0,default_permissions,allow_other"
RIGHT = {
    "Meta": {"OpenCache": 0},
    "Chunk": {"Writeback": False},
    "AttrTimeout": 1_000_000_000,
    "DirEntryTimeout": 1_000_000_000,
    "NegEntryTimeout": 0,
    "ReaddirCache": False,
    "FuseOpts": {"EnableWriteback": False},
}
"""Of what JuiceFS 1.4.2 tells of a mount with its default options."""
WRONG: dict[str, dict[str, Any]] = {
    "--writeback": {"Chunk": {"Writeback": True}},
    "--open-cache": {"Meta": {"OpenCache": 5_000_000_000}},
    "--readdir-cache": {"ReaddirCache": True},
    "--negative-entry-cache": {"NegEntryTimeout": 1_000_000_000},
    "-o writeback_cache": {"FuseOpts": {"EnableWriteback": True}},
}


def mount(where: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel's list of mounts say that `where` is mounted so."""
    text = f"{LOCAL}\n2 1 0:5 / {where} rw,relatime shared:1 - {how}\n"
    read = Path.read_text

    def fabricated(path: Path, *args: Any, **how: Any) -> str:
        if str(path) == "/proc/self/mountinfo":
            return text
        return read(path, *args, **how)

    monkeypatch.setattr(Path, "read_text", fabricated)


def memory(version: int = NEWEST_FORMAT) -> MemoryBackend:
    backend = MemoryBackend(Space(), url=f"memory://{uuid.uuid4().hex}")
    backend.marked_format = version
    return backend


def master(storage: Path, version: int = NEWEST_FORMAT) -> Master:
    backend = memory(version)
    return Master(backend, url=backend.url, storage=storage)


@pytest.mark.parametrize("how", REFUSED.values(), ids=REFUSED.keys())
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """C1: where names are cached, a renamed folder is no fence; what helps is said."""
    mount(tmp_path, how, monkeypatch)
    with pytest.raises(
        InvalidInput, match=r"cannot keep their files in .* JuiceFS, Lustre or NFS"
    ) as no:
        master(tmp_path / "jobs")
    assert f"it is on {how.partition(' ')[0]}" in str(no.value)
    assert "\n" not in str(no.value)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("how", [*FIT.values(), *CACHED.values()], ids=[*FIT, *CACHED])
def test_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """C1: tight by its options, or because the filesystem takes cached names back, or because no
    handle leads to a new folder."""
    mount(tmp_path, how, monkeypatch)
    master(tmp_path / "jobs")


@pytest.mark.parametrize("how", CACHED.values(), ids=CACHED.keys())
def test_where_leaders_only_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """C1: before format 5 cached names leak; what helps is said, and helps."""
    mount(tmp_path, how, monkeypatch)
    with pytest.raises(InvalidInput, match=r"--raise'.* lookupcache=none or noac on every host"):
        master(tmp_path / "jobs", SINCE_FORMAT - 1)
    assert not (tmp_path / "jobs").exists()
    master(tmp_path / "jobs", SINCE_FORMAT)
    mount(tmp_path, FIT["lookupcache=none"], monkeypatch)
    master(tmp_path / "jobs", SINCE_FORMAT - 1)


def test_a_leader_that_sees_old_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: with nocto a client does not ask the server what is in a folder that it opens."""
    mount(tmp_path, f"nfs4 host:/x {NFS},nocto", monkeypatch)
    with pytest.raises(InvalidInput, match="mount it without nocto on every host"):
        master(tmp_path / "jobs")


@pytest.mark.parametrize("name", [".config", ".jfs.config"])
def test_juicefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """C1: names are cached for a second, and no handle leads to a new folder."""
    (tmp_path / name).write_text(json.dumps(RIGHT))
    mount(tmp_path, JUICEFS, monkeypatch)
    with pytest.raises(InvalidInput, match=r"old name .* --raise'"):
        master(tmp_path / "jobs", SINCE_FORMAT - 1)
    assert not (tmp_path / "jobs").exists()
    master(tmp_path / "jobs")


@pytest.mark.parametrize("option", WRONG)
def test_juicefs_with_a_wrong_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """C1: a leader has to see what another host has written, and it has to outlive that host."""
    (tmp_path / ".config").write_text(json.dumps({**RIGHT, **WRONG[option]}))
    mount(tmp_path, JUICEFS, monkeypatch)
    with pytest.raises(InvalidInput, match=f"it is on fuse.juicefs with {option}, .* without"):
        master(tmp_path / "jobs")
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_juicefs_that_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """C1: a mount that is not known to be right is refused; what helps is said."""
    if content is not None:
        (tmp_path / ".config").write_text(content)
    mount(tmp_path, JUICEFS, monkeypatch)
    with pytest.raises(InvalidInput, match=r"\.config.* cannot be read .* as the user that runs"):
        master(tmp_path / "jobs")


def test_a_link_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: by whatever path it is named."""
    (tmp_path / "nfs").mkdir()
    (tmp_path / "local").symlink_to(tmp_path / "nfs")
    mount(tmp_path / "nfs", REFUSED["cifs"], monkeypatch)
    with pytest.raises(InvalidInput, match="it is on cifs"):
        master(tmp_path / "local" / "jobs")


@pytest.mark.parametrize("version", [SINCE_FORMAT - 1, SINCE_FORMAT])
def test_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """C1: the doctor says the same, as a finding with its remedy."""
    mount(tmp_path, CACHED["actimeo=1"], monkeypatch)
    backend = memory(version)
    found = {one.what: one for one in examine(backend, backend, ttl=60.0, storage=tmp_path)}

    assert str(tmp_path) in found["storage"].detail
    assert "nfs4" in found["storage"].detail
    if version < SINCE_FORMAT:
        assert "lookupcache=none or noac on every host" in (found["storage"].remedy or "")
    else:
        assert found["storage"].remedy is None


def test_on_the_command_line(tmp_path: Path) -> None:
    """C1: `jrs doctor` checks the folder of `--storage`, or else the default of masters."""
    url = (tmp_path / "store").as_uri()
    open_backend(url).close()
    for more in ((), ("--storage", str(tmp_path / "jobs"))):
        done = subprocess.run(
            [sys.executable, "-m", "jrs", "doctor", "--ttl", "60", "--backend", url, *more],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        where = tmp_path / "jobs" if more else tmp_path / "store" / "storage"
        assert f"{where}, on " in done.stdout, done.stderr
