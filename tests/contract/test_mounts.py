"""Which filesystems other hosts reach."""

from pathlib import Path

import pytest

from jrs.contract.mounts import reach_problem

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


def test_a_mount_that_is_not_known() -> None:
    """Where it cannot be told, a person has to."""
    problem = reach_problem(Path("/shared/jrs"), "")
    assert problem is not None
    assert "unknown" in problem
