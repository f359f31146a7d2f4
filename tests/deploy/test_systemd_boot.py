"""The units under a real systemd, the first process of a container of its own: the long form."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from jrs.testing.servers.ports import Ports
from tests.deploy.found import KIT, tool
from tests.deploy.image import IMAGE, Docker
from tests.support import until

JOBS = Path(__file__).parent / "jobs"
LONG = 600.0
"""Seconds for what takes a JVM some ten, on a host that does other work as well."""


@attrs.frozen
class Box:
    """A container whose first process is systemd."""

    pid: int

    def __call__(self, *command: str, check: bool = True) -> str:
        """Return what a command prints there."""
        ended = subprocess.run(
            ["nsenter", f"--target={self.pid}", "--all", *command], text=True, timeout=LONG,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert not check or ended.returncode == 0, f"{command}: {ended.stdout}"
        return ended.stdout

    def jrs(self, *arguments: str, check: bool = True) -> str:
        """Run the command of the kit, without an environment: it finds the settings and the key."""
        path = "PATH=/usr/local/bin:/usr/bin:/bin"
        return self("env", "--ignore-environment", path, "jrs", *arguments, check=check)

    def journal(self) -> str:
        return self("journalctl", "--unit=jrs-master@*", "--no-pager", "--output=short-precise")


def make_root(docker: Docker, folder: Path, etcd: list[int]) -> None:
    """Make the root: the image's jrs and Java, Debian's systemd and etcd, the kit's units."""
    packed = folder.with_suffix(".tar")
    docker("create", "--name=root", IMAGE)
    docker("export", "--output", packed, "root")
    docker("rm", "root")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder, "-f", packed], check=True, timeout=LONG)
    packed.unlink()
    shutil.copyfile("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    (folder / "etc" / "hosts").write_text("127.0.0.1 localhost jrsbox\n")
    install = (
        "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "
        "--no-install-recommends systemd systemd-sysv dbus etcd-server && rm -rf /var/lib/jrs"
    )
    subprocess.run(["chroot", folder, "sh", "-c", install], check=True, timeout=LONG)
    units = folder / "etc" / "systemd" / "system"
    shutil.copy(KIT / "systemd" / "jrs-master@.service", units)
    drop_in = units / "jrs-master@.service.d"
    drop_in.mkdir()
    shutil.copy(KIT / "systemd" / "jrs-master@.service.d" / "credentials.conf", drop_in)
    shutil.copy(KIT / "systemd" / "jrs", folder / "usr" / "local" / "bin")
    shutil.copytree(JOBS, folder / "opt" / "jobs", dirs_exist_ok=True)
    settings = folder / "etc" / "jrs"
    settings.mkdir()
    client, peer = (f"http://127.0.0.1:{port}" for port in etcd)
    (settings / "jrs.toml").write_text(
        f'backend = "etcd://127.0.0.1:{etcd[0]}/jrs"\nstorage = "/var/lib/jrs/files"\n'
    )
    (settings / "spec.key").write_text(secrets.token_hex(32))
    (settings / "spec.key").chmod(0o600)
    (folder / "etc" / "default" / "etcd").write_text(
        f"ETCD_LISTEN_CLIENT_URLS={client}\nETCD_ADVERTISE_CLIENT_URLS={client}\n"
        f"ETCD_LISTEN_PEER_URLS={peer}\n"
    )


@contextmanager
def booted(root: Path) -> Iterator[Box]:
    """Boot a root meanwhile."""
    nspawn = tool("systemd-nspawn", "apt-get install systemd-container")
    log = root.with_suffix(".log")
    command = [nspawn, "--register=no", "--keep-unit", "--boot", "--machine=jrsbox"]
    command.append(f"--directory={root}")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def box() -> Box | None:
            # The first child of nspawn is there for a moment only.
            for pid in children.read_text().split()[:1]:
                state = Box(int(pid))("systemctl", "is-system-running", check=False).strip()
                if state in ("running", "degraded"):
                    return Box(int(pid))
            assert process.poll() is None, log.read_text()
            return None

        found: Box = until(box, "systemd has started", LONG)
        try:
            yield found
        finally:  # Without it, what runs there outlives nspawn.
            found("systemctl", "poweroff", check=False)
            process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_a_real_systemd_runs_masters(docker: Docker, tmp_path: Path) -> None:
    """Masters with the unit's limits run a signed job on Spark, with a key that is a credential.
    One is killed: systemd leaves its guardian alone, and starts it again; the other one leads
    meanwhile, and finishes the job. Masters that are stopped end in order."""
    ports = Ports()
    root = tmp_path / "root"
    make_root(docker, root, [ports.take(), ports.take()])
    with booted(root) as box:
        until(lambda: box("systemctl", "is-active", "etcd", check=False) == "active\n", "etcd runs")
        for name in ("1", "2"):
            box("systemctl", "start", f"jrs-master@{name}")
            # Before the first one there is no cluster.
            until(lambda: f"jrsbox-{name}" in box.jrs("masters", check=False), "it campaigns")  # noqa: B023
        submitted = ["--arg", "rows=1000", "--arg", "wait=/var/lib/jrs/go"]
        box.jrs("submit", "night", "etl:count", *submitted)
        until(lambda: "stage once finished" in box.journal(), "its stream has finished", LONG)

        (killed,) = re.findall(r"jrsbox-(\d) +leads", box.jrs("masters"))
        box("systemctl", "kill", "--kill-whom=main", "--signal=KILL", f"jrs-master@{killed}")
        until(lambda: "epoch 2  jrsbox-" in box.journal(), "the other one is elected")
        box("touch", "/var/lib/jrs/go")
        assert '"rows": 1000' in box.jrs("wait", "night", "--timeout", "600")
        journal = box.journal()
        print(journal)
        elected = [at for at in journal.splitlines() if "is elected" in at]
        ended = [at for at in journal.splitlines() if "Main process exited" in at]
        print(ended[0], elected[-1], sep="\n")
        until(lambda: "Scheduled restart job" in box.journal(), "the killed one is started again")

        box("systemctl", "stop", "jrs-master@1", "jrs-master@2")
        for name in ("1", "2"):
            said = box(
                "systemctl", "show", "--property=Result,ExecMainStatus", f"jrs-master@{name}"
            )
            assert set(said.split()) == {"Result=success", "ExecMainStatus=0"}
    ports.close()
