"""Images made from Debian's own packages, which take commands as the public images do.

So the container path is tested for real where no registry can be reached.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import docker

from jrs.testing.servers.local import etcd_binary, zookeeper_classpath

ETCD = "jrs-test-etcd:debian"
ZOOKEEPER = "jrs-test-zookeeper:debian"

# As in the public image, but for the user it would change to.
_ENTRY_POINT = """#!/bin/bash
set -e
[ -f /data/myid ] || echo "${ZOO_MY_ID:-1}" > /data/myid
exec "$@"
"""
_ZK_SERVER = """#!/bin/bash
[ "$1" = start-foreground ] || exit 2
exec JAVA -Xmx${{ZK_SERVER_HEAP}}m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \\
  $SERVER_JVMFLAGS -cp {classpath} org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
"""


def make_etcd_image(host: str) -> str:
    """Make an image of Debian's etcd in an engine; return its name."""
    binary = Path(etcd_binary())
    image = _Image()
    image.add(binary, "/usr/local/bin/etcd")
    image.add_all(_libraries([binary]))
    return image.load(host, ETCD)


def make_zookeeper_image(host: str) -> str:
    """Make an image of Debian's ZooKeeper and Java in an engine; return its name."""
    home = _java_home()
    java = home / "bin" / "java"
    bash = Path("/bin/bash")
    image = _Image()
    image.add(bash, "/bin/bash")
    # What its links lead to, in /etc; some lead nowhere, and a server compiles nothing.
    image.add_all(f for f in home.rglob("*") if f.is_file() and "jmods" not in f.parts)
    image.add_all(_jars(zookeeper_classpath().split(":")))
    image.add_all(_libraries([bash, java, *home.glob("lib/**/*.so")]))
    image.write("/docker-entrypoint.sh", _ENTRY_POINT)
    script = _ZK_SERVER.replace("JAVA", str(java)).format(classpath=zookeeper_classpath())
    image.write("/bin/zkServer.sh", script)
    for folder in ("/data", "/conf", "/tmp"):
        image.make_folder(folder)
    return image.load(
        host,
        ZOOKEEPER,
        ['ENTRYPOINT ["/docker-entrypoint.sh"]', "ENV PATH=/bin ZK_SERVER_HEAP=128"],
    )


def _java_home() -> Path:
    """Return the folder of the Java that runs; the one on the PATH may be a script."""
    shown = subprocess.run(
        ["java", "-XshowSettings:properties", "-version"],
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    ).stderr
    (home,) = re.findall(r"^ +java\.home = (.+)$", shown, re.MULTILINE)
    return Path(home)


class _Image:
    """A file system as a tar file, in which no path is twice."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", dereference=True)  # noqa: SIM115
        self._paths: set[str] = set()

    def add(self, source: Path, target: str) -> None:
        path = os.path.normpath(target).lstrip("/")
        if path not in self._paths:
            self._paths.add(path)
            self._tar.add(source, path, recursive=False)

    def add_all(self, files: Iterable[Path]) -> None:
        for file in files:
            self.add(file, str(file))

    def write(self, path: str, text: str) -> None:
        info = tarfile.TarInfo(path.lstrip("/"))
        info.size, info.mode = len(text.encode()), 0o755
        self._tar.addfile(info, io.BytesIO(text.encode()))

    def make_folder(self, path: str) -> None:
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, 0o777
        self._tar.addfile(info)

    def load(self, host: str, name: str, changes: Iterable[str] = ()) -> str:
        self._tar.close()
        repository, _, tag = name.partition(":")
        client = docker.DockerClient(host)
        try:
            client.api.import_image_from_data(
                self._buffer.getvalue(), repository=repository, tag=tag, changes=list(changes)
            )
        finally:
            client.close()
        return name


def _libraries(binaries: Iterable[Path]) -> Iterator[Path]:
    """Yield what binaries are linked with, by the names that the loader looks for."""
    for binary in binaries:
        lists = subprocess.run(
            ["ldd", str(binary)], capture_output=True, text=True, timeout=30.0, check=False
        )
        yield from map(Path, re.findall(r"(?:^\s*|=> )(/\S+)", lists.stdout, re.MULTILINE))


def _jars(names: Iterable[str]) -> Iterator[Path]:
    """Yield jars and what their manifests name."""
    for name in names:
        yield Path(name)
        with zipfile.ZipFile(name) as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r", "")
        found = re.search(r"^Class-Path: (.*)$", manifest.replace("\n ", ""), re.MULTILINE)
        for other in found[1].split() if found else ():
            path = Path(name).parent / other
            if path.exists():
                yield path
