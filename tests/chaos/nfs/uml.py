"""A Linux kernel of our own, as a process: user-mode-linux, with this machine's files below /.

It brings what the machine's kernel may lack: a server and clients of NFS.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
KERNEL = "linux.uml"
NEEDED = (KERNEL, "rpc.nfsd", "exportfs", "mount.nfs", "rpcbind", "mkfs.ext4", "ip")
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
_MODULES = Path("/usr/lib/uml/modules")
_POWER_OFF = 0x4321FEDC
_INIT_MODULE = 175
"""The number of the system call on x86_64."""


def missing() -> list[str]:
    """Return what this machine lacks to run a kernel of our own."""
    found = [name for name in NEEDED if shutil.which(name, path=SEARCHED) is None]
    if platform.machine() != "x86_64":
        found.append("an x86_64 processor")
    if os.geteuid() != 0:
        found.append("root")
    return found


def boot(program: Sequence[str], folder: Path, *, disk_mb: int, timeout: float) -> str:
    """Start a kernel whose first process is ``python -m PROGRAM``; return all that it printed.

    Args:
        folder: an empty folder for what the kernel needs. Its disk ``/dev/ubda`` is a file there.
    """
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(disk_mb << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], env={"PATH": SEARCHED}, check=True, timeout=60)
    inside = {
        "PATH": SEARCHED,
        "HOME": "/root",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        *(KERNEL, "mem=1500M", "rootfstype=hostfs", "rootflags=/", "rw", f"ubd0={disk}"),
        *(f"uml_dir={folder}", "con=null", "con0=null,fd:1", "ssl=null", "quiet"),
        *("init=/usr/bin/env", "--", *(f"{name}={value}" for name, value in inside.items())),
        *(sys.executable, "-m", *program),
    ]
    environment = {"PATH": SEARCHED, "HOME": str(folder)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=timeout, check=False,
    )  # fmt: skip
    return done.stdout.decode(errors="replace")


# -- inside of it --------------------------------------------------------------------------


def load_modules(names: Sequence[str]) -> None:
    """Load modules of the kernel, and before each of them those that it needs."""
    folder = _MODULES / platform.release()
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).stem] = [path, *others.split()]
    libc = ctypes.CDLL(None, use_errno=True)
    loaded = set()
    for name in names:
        for path in reversed(needs.get(name, [])):  # One that is built in has no file.
            if path not in loaded:
                data = (folder / path).read_bytes()
                if libc.syscall(_INIT_MODULE, data, len(data), b""):
                    raise OSError(ctypes.get_errno(), f"module {path} cannot be loaded")
                loaded.add(path)


def power_off() -> None:
    os.sync()
    ctypes.CDLL(None).reboot(_POWER_OFF)
