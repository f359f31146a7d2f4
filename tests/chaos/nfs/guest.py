"""Inside of user-mode-linux, as the first process: an NFS server, two clients, and one trial.

    env … python -m tests.chaos.nfs.guest FOLDER

`FOLDER` has the trial as ``trial.json``; the verdict is put next to it. Each client is a mount in a
network namespace of its own, under a host name of its own, so that the server takes them for two
hosts, and neither sees what the other has cached.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.chaos.nfs import uml
from tests.chaos.nfs.between_clients import play
from tests.chaos.nfs.trial import EXPORT, LOGS, MOUNTS

_MODULES = ("ext4", "veth", "nfsd", "nfsv4", "nfsv3")


def make_machine() -> None:
    """Mount what a machine has, load what NFS needs, and start the server."""
    for kind, where in (
        ("proc", "/proc"), ("sysfs", "/sys"),
        ("tmpfs", "/run"), ("tmpfs", "/mnt"), ("tmpfs", "/var/lib/nfs"),
    ):  # fmt: skip
        call("mount", "-n", "-t", kind, "none", where)
    uml.load_modules(_MODULES)
    for path in (EXPORT, LOGS, *MOUNTS, Path("/run/netns"), Path("/var/lib/nfs/v4recovery")):
        path.mkdir(parents=True)
    for name in ("etab", "rmtab"):
        Path("/var/lib/nfs", name).touch()
    socket.sethostname("server")
    call("ip", "link", "set", "lo", "up")
    call("mount", "-n", "-t", "ext4", "/dev/ubda", str(EXPORT))
    call("mount", "-n", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    for name in ("nfsv4leasetime", "nfsv4gracetime"):
        Path("/proc/fs/nfsd", name).write_text("10\n")
    how = "rw,async,no_root_squash,insecure,fsid=0,no_subtree_check"
    call("exportfs", "-i", "-o", how, f"*:{EXPORT}")
    call("rpcbind")  # For version 3.
    call("rpc.mountd", "-V", "3")
    call("rpc.nfsd", "-V", "3", "-V", "4", "-V", "4.2", "8")


def client(number: int, options: str, *program: str) -> subprocess.Popen[bytes]:
    """Start a program on a client of its own, whose files are below `MOUNTS[number]`."""
    exported = EXPORT if options.startswith("vers=3") else "/"
    space, wire, server = f"c{number}", f"s{number}", f"10.231.9.{number * 4 + 1}"
    call("ip", "netns", "add", space)
    call("ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", space)
    call("ip", "addr", "add", f"{server}/30", "dev", wire)
    call("ip", "link", "set", wire, "up")
    call("ip", "-n", space, "addr", "add", f"10.231.9.{number * 4 + 2}/30", "dev", "eth0")
    call("ip", "-n", space, "link", "set", "eth0", "up")
    call("ip", "-n", space, "link", "set", "lo", "up")
    script = f"""
      hostname client{number} &&
      mount -n -t nfs -o {options},nosharecache {server}:{exported} {MOUNTS[number]} &&
      grep " {MOUNTS[number]} " /proc/self/mountinfo && exec "$@"
    """
    return subprocess.Popen(
        ["ip", "netns", "exec", space, "unshare", "-m", "-u", "--",
         "sh", "-c", script, "sh", sys.executable, "-m", *program]
    )  # fmt: skip


def run(folder: Path) -> dict[str, Any]:
    make_machine()
    return play(folder / "trial.json", client)


def call(*command: str) -> None:
    subprocess.run(command, check=True)


def main(folder: Path) -> None:
    try:
        found = run(folder)
        (folder / "verdict.json").write_text(json.dumps(found, indent=1))
        print("done", flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        uml.power_off()


if __name__ == "__main__":
    os.chdir("/")
    main(Path(sys.argv[1]))
