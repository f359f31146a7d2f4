"""Which filesystems other hosts reach."""

from pathlib import Path

import pytest

from jrs.host.filesystems import fences_names, reach_problem

MOUNTS = """\
22 1 8:1 / / rw,relatime - {root} /dev/sda1 rw
40 22 0:50 / /shared rw,relatime - {kind} server:/export rw,noac
"""


@pytest.mark.parametrize(
    ("kind", "reached"),
    [
        ("nfs4", True),
        ("ceph", True),
        ("lustre", True),
        ("fuse.juicefs", True),
        ("fuse.sshfs", False),
        ("ext4", False),
        ("xfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("unheard-of", False),
    ],
)
def test_what_other_hosts_reach(kind: str, *, reached: bool) -> None:
    """Only a filesystem that is known to be mounted by several hosts counts; the message names the
    others."""
    problem = reach_problem(Path("/shared/jrs"), MOUNTS.format(root="ext4", kind=kind))

    assert (problem is None) is reached
    assert problem is None or kind in problem


@pytest.mark.parametrize(
    ("kind", "options", "fences"),
    [
        ("nfs4", "rw", False),
        ("nfs", "rw,actimeo=1", False),
        ("nfs4", "rw,lookupcache=none", True),
        ("nfs4", "rw,noac", True),
        ("ext4", "rw", True),
        ("ceph", "rw", True),
        ("fuse.juicefs", "rw", False),
    ],
)
def test_a6_where_a_rename_is_a_fence(kind: str, options: str, *, fences: bool) -> None:
    """A6: elsewhere a driver that was replaced may still plan in a renamed folder."""
    mounts = f"40 22 0:50 / /shared rw,relatime - {kind} server:/export {options}\n"
    assert fences_names(Path("/shared/jrs"), mounts) is fences


def test_a_mount_that_is_not_known() -> None:
    """Where it cannot be told, a person has to."""
    problem = reach_problem(Path("/shared/jrs"), "")
    assert problem is not None
    assert "unknown" in problem
