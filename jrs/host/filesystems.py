"""The filesystem that a path is on: jrs needs guarantees that some filesystems do not give."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from jrs.contract.errors import InvalidInput
from jrs.host import juicefs

STORAGE = "JRS_STORAGE"
"""The environment variable that names the storage, where no argument does."""

OBJECT_STORES = {
    f"fuse.{name}"
    for name in (
        *("s3fs", "goofys", "geesefs", "mountpoint-s3", "gcsfuse", "blobfuse", "blobfuse2"),
        *("rclone", "ossfs", "cosfs"),
    )
}
"""Mounts of object stores, which rename a folder object by object, or not at all."""

_NFS = {"nfs", "nfs4"}
_TIGHT = {"lookupcache=none", "noac"}
"""The options of NFS with which names are not cached."""

_CACHE_NAMES = {
    *("afs", "beegfs", "cifs", "coda", "davfs", "glusterfs", "ncpfs", "orangefs", "prl_fs"),
    *("pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs"),
}
"""Filesystems that cache names, or may do so, and have no known option that prevents it."""

_LOCAL_FUSE = {"fuseblk", "fuse.fuse-overlayfs"}
"""FUSE filesystems of one host, whose kernel sees every rename."""

_JUICEFS = "fuse.juicefs"

_REACHED_BY_HOSTS = {
    *("ceph", "fuse.ceph", "fuse.ceph-fuse", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"),
    _JUICEFS,
}
"""Filesystems that several hosts mount, of those that jobs can keep their files on."""

NETWORK_FILESYSTEMS = _CACHE_NAMES | _REACHED_BY_HOSTS | {"9p", "gfs", "panfs", "wekafs"}
"""Filesystems that several kernels may mount: every one that this module knows, and more."""

_ELSEWHERE = "name a folder on a local filesystem, on CephFS, JuiceFS, Lustre or NFS"

_OLD_FORMAT = "this cluster has a format before 5"
_RAISE = "raise the format with 'jrs cluster-format --raise'"


@attrs.frozen
class Mount:
    """The mount that a path is on."""

    kind: str
    """The type, for example ``ext4`` or ``nfs4``."""
    source: str
    point: Path
    """Where it is mounted."""
    options: frozenset[str]
    """Options of the mount and of its filesystem, for example ``noac``."""


def mount_of(path: Path, mounts: str | None = None) -> Mount | None:
    """Return the mount that `path` is on; None if it cannot be determined.

    Args:
        mounts: the text of ``/proc/self/mountinfo``; None reads that file.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return None
    resolved = str(path.resolve())
    best, found = -1, None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            kind, source, options = [*after.split(" "), "", ""][:3]
            both = ",".join((*fields[5:6], options))
            best = len(point)
            found = Mount(kind, source, Path(point), frozenset(both.split(",")))
    return found


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """Return the type of the filesystem that `path` is on; empty if it cannot be determined.

    `mounts` is as in `mount_of`.
    """
    found = mount_of(path, mounts)
    if found is None:
        return ""
    # Some FUSE filesystems have the type "fuse" and give their name only as the source.
    named = f"fuse.{found.source}"
    local = named in OBJECT_STORES or named in _LOCAL_FUSE
    return named if found.kind == "fuse" and local else found.kind


def storage_problem(
    path: Path, mounts: str | None = None, *, renewed: bool = True
) -> tuple[str, str] | None:
    """Return why jobs cannot keep their files at `path`, and the remedy; None if they can.

    A new leader takes the paths of an older attempt away. Where clients cache names, an attempt on
    another host still finds a renamed folder. NFS and JuiceFS name folders by handles, and no
    handle leads to a new folder, so there a leader that makes new folders fences (docs/proofs.md
    has the trials). It also has to see what the attempt has written: an NFS client asks the server
    when a folder is opened, unless it is mounted with ``nocto``; for JuiceFS see `juicefs`.

    Args:
        mounts: as in `mount_of`.
        renewed: whether new leaders make new folders; before format 5 they only rename.
    """
    kind, mount = filesystem_of(path, mounts), mount_of(path, mounts)
    if kind in OBJECT_STORES:
        return (
            f"it is on {kind}, where a folder is not renamed in one step",
            _ELSEWHERE,
        )
    why = f"it is on {kind}, where other hosts still find a renamed folder by its old name"
    if kind in _NFS:
        return _problem_of_nfs(kind, mount.options if mount else frozenset(), why, renewed)
    if kind == _JUICEFS and mount is not None:
        return _problem_of_juicefs(mount.point, why, renewed)
    fuse = kind.startswith("fuse") and kind not in _LOCAL_FUSE
    if kind in _CACHE_NAMES or fuse or (kind == "9p" and _caches(mount)):
        return why, _ELSEWHERE
    return None


def fences_names(path: Path, mounts: str | None = None) -> bool:
    """Return whether a renamed folder on the filesystem of `path` is at once out of every process's
    reach. On NFS it is so only if names are not cached. JuiceFS has other ways to forget them, and
    caches them by default.

    `mounts` is as in `mount_of`.
    """
    mount = mount_of(path, mounts)
    if mount is None or mount.kind not in {*_NFS, _JUICEFS}:
        return True
    return mount.kind in _NFS and bool(mount.options & _TIGHT)


def reach_problem(path: Path, mounts: str | None = None) -> str | None:
    """Return why other hosts do not seem to have the files at `path`; None if they can have them.

    `mounts` is as in `mount_of`.
    """
    kind = filesystem_of(path, mounts)
    if kind in _REACHED_BY_HOSTS:
        return None
    return f"it is on {kind or 'an unknown filesystem'}, which is a filesystem of this host alone"


def check_storage(path: Path, mounts: str | None = None, *, renewed: bool = True) -> None:
    """Raise `InvalidInput`, with the remedy, if jobs cannot keep their files at `path`.

    The arguments are as in `storage_problem`.
    """
    problem = storage_problem(path, mounts, renewed=renewed)
    if problem is not None:
        why, remedy = problem
        raise InvalidInput(f"jobs cannot keep their files in {path}: {why}; {remedy}")


def _problem_of_nfs(
    kind: str, options: frozenset[str], why: str, renewed: bool
) -> tuple[str, str] | None:
    if "nocto" in options and "noac" not in options:
        return (
            f"it is on {kind} with nocto, where a leader may see a folder as it was before",
            "mount it without nocto on every host, then start again",
        )
    if renewed or options & _TIGHT:
        return None
    return (
        f"{why} ({_OLD_FORMAT})",
        f"{_RAISE}, or mount it with {' or '.join(sorted(_TIGHT))} on every host, then start again",
    )


def _problem_of_juicefs(point: Path, why: str, renewed: bool) -> tuple[str, str] | None:
    if not renewed:
        return f"{why} ({_OLD_FORMAT})", f"{_RAISE}, then start again"
    problem = juicefs.problem(point)
    return problem and (f"it is on {_JUICEFS}{problem[0]}", problem[1])


def _caches(mount: Mount | None) -> bool:
    """Return whether a 9p mount caches names. By default it does not."""
    options = mount.options if mount is not None else ()
    modes = [option.removeprefix("cache=") for option in options if option.startswith("cache=")]
    return any(mode not in ("none", "0", "0x0", "remote_revalidating") for mode in modes)
