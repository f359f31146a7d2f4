"""The folder of a file backend: whose it is, who may read it, what it may lie on."""

import gc
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from jrs.backends.file import damage, opening
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER, check_filesystem, format_of
from jrs.backends.file.segments.suspects import Suspects
from jrs.contract.errors import Conflict, InvalidInput, Unavailable, UnsupportedVersion
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead
from tests.support import BOUND, refuse_threads, until


def test_a_path_with_spaces(tmp_path: Path) -> None:
    """A folder with any name is opened by its URL."""
    root = tmp_path / "a b%20ü#?"
    with open_backend(root.as_uri()) as backend:
        backend.commit(Create("k", b""))
    with open_backend(root.as_uri(), create=False) as backend:
        assert contents(backend) == {"k": b""}


def test_private(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, whatever the umask is."""
    umask = os.umask(0)
    try:
        root = tmp_path / "made" / "here"
        with FileBackend(root) as backend:
            backend.commit(Create("k", b""))
            backend.compact()
    finally:
        os.umask(umask)
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("create", [True, False])
def test_a_foreign_folder(tmp_path: Path, create: bool) -> None:
    """A folder that holds something else and no marker is refused and left as it is."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInput, match=r"thesis\.tex"):
        FileBackend(tmp_path, create=create)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("marker", [b"", b"{", b"[]", b'{"format":"other"}', b"\xff", b"[" * 9999])
def test_a_foreign_marker(tmp_path: Path, marker: bytes) -> None:
    """A marker that is not ours is refused, whatever it holds."""
    (tmp_path / "jrs.json").write_bytes(marker)
    with pytest.raises(InvalidInput, match="cannot be read"):
        FileBackend(tmp_path)


def test_no_flipped_bit_of_the_marker_is_another_format(tmp_path: Path) -> None:
    """What is written in a lower format lacks what the right one promises: `by_end` of results."""
    FileBackend(tmp_path).close()
    path = tmp_path / MARKER
    whole = path.read_bytes()
    refused = 0
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert format_of(tmp_path) == NEWEST_FORMAT
        except (InvalidInput, UnsupportedVersion):
            refused += 1
    assert refused > len(whole) * 4
    path.write_bytes(whole.replace(b"%d" % NEWEST_FORMAT, b"3", 1))
    with pytest.raises(InvalidInput, match="damaged"):
        FileBackend(tmp_path)


def test_a_marker_of_a_former_version(tmp_path: Path) -> None:
    """It has no checksum."""
    (tmp_path / MARKER).write_text(json.dumps({"format": "jrs", "version": 6}))
    with FileBackend(tmp_path) as backend:
        assert backend.marked_format == 6


def test_a_file_in_its_place(tmp_path: Path) -> None:
    """A path that is a file, or leads through one, is refused."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="not a folder"):
            FileBackend(path)


def test_nothing_is_created_unasked(tmp_path: Path) -> None:
    """Without `create` a store that does not exist is refused and not made."""
    with pytest.raises(InvalidInput, match="no jrs cluster"):
        open_backend((tmp_path / "none").as_uri(), create=False)
    assert list(tmp_path.iterdir()) == []


def test_many_create_it_at_once(tmp_path: Path) -> None:
    """Processes that make the same store at the same time all end in one store."""

    def make(number: int) -> None:
        with FileBackend(tmp_path / "store") as backend:
            backend.commit(Create(f"k/{number}", b""))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))
    with FileBackend(tmp_path / "store") as backend:
        assert len(contents(backend)) == 8


def test_no_thread_for_a_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry on Unavailable opens it once there are threads, and the tries before left nothing."""
    refused = refuse_threads(monkeypatch, "jrs-commits-", 3)
    for _ in range(3):
        with pytest.raises(Unavailable, match="can't start new thread"):
            open_backend(tmp_path.as_uri())
    assert len(refused) == 3
    assert not open_below(tmp_path)
    with open_backend(tmp_path.as_uri()) as backend:
        backend.commit(Create("k", b""))
        assert open_below(tmp_path)


def open_below(folder: Path) -> list[Path]:
    """Return the files in a folder that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # It has been closed meanwhile.
            found.append(Path("/proc/self/fd", name).readlink())
    return [path for path in found if path.is_relative_to(folder)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_no_permission() -> None:
    """The store of another user is refused in one line that says what to do."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        open_to_all = Path(name)
        open_to_all.chmod(0o755)
        FileBackend(open_to_all / "store").close()
        refused_to_nobody(open_to_all / "store")


def refused_to_nobody(root: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from jrs.backends.file.backend import FileBackend\n"
        "from jrs.contract.errors import InvalidInput\n"
        "FileBackend(Path(sys.argv[1])).close()  # All is imported before root is given up.\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: FileBackend(Path(sys.argv[1]))\n"
        "except InvalidInput as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("no permission for "), done.stderr


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:5 / /mnt/nfs rw - nfs4 host:/x rw
3 1 0:6 / /mnt/nfs/local rw shared:7 - xfs /dev/sdb rw
4 1 0:7 / /mnt/with\\040space rw - cifs //host/x rw
5 1 0:8 / /mnt/fuse rw - fuse.sshfs host rw
7 1 0:9 / /mnt/ü rw - nfs4 host:/y rw
6 1 0:9 / /mnt/tmp rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "refused"),
    [("/var/x", False), ("/mnt/nfs", True), ("/mnt/nfs/a/b", True), ("/mnt/nfs/local/a", False),
     ("/mnt/nfsx", False), ("/mnt/with space/x", True), ("/mnt/fuse/x", True), ("/mnt/ü/x", True),
     ("/mnt/tmp/x", False)],
)  # fmt: skip
def test_filesystems(path: str, refused: bool) -> None:
    """Network filesystems are refused by name with the alternatives; local ones are not."""
    if refused:
        with pytest.raises(InvalidInput, match="zookeeper:// or etcd://"):
            check_filesystem(Path(path), MOUNTS)
    else:
        check_filesystem(Path(path), MOUNTS)


@pytest.mark.parametrize(
    "kind",
    ["9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.juicefs", "gfs", "gfs2",
     "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs",
     "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs"],
)  # fmt: skip
def test_what_several_hosts_may_mount_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"is on {kind}, where appends of several hosts"):
        check_filesystem(Path("/mnt/x"), f"1 0 0:5 / /mnt rw - {kind} src rw\n")


def test_every_new_name_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes back the name of a folder whose parent was not synced, and all that is in
    it."""
    synced: set[str] = set()

    def fsync(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", fsync)
    with FileBackend(tmp_path / "srv" / "jrs") as backend:
        backend.commit(Create("k", b""))
    made = [path for path in tmp_path.rglob("*") if path.is_dir() and path.name != "leader"]
    assert len(made) == 5
    assert {str(path.parent) for path in made} <= synced

    synced.clear()  # Whose maker may have died before it synced its name.
    with FileBackend(tmp_path / "srv" / "jrs", create=False) as backend:
        backend.commit(Create("l", b""))
        log = backend.replica.folder
    assert {str(log), str(log.parent)} <= synced


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files away")
@pytest.mark.parametrize("form", [2, None])
def test_what_root_makes_is_the_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: int | None
) -> None:
    """A command of root's leaves nothing that the masters cannot open: no segment, no base, no
    lock of a leader, no mark, no other cluster."""
    if form is not None:
        monkeypatch.setattr(opening, "NEWEST_FORMAT", form)
    owner = (65534, 65533)
    root = tmp_path / "made"
    root.mkdir(mode=0o700)
    os.chown(root, *owner)
    with FileBackend(root) as backend, lead(backend):
        for number in range(3):
            backend.commit(Create(f"k{number}", b""))
            backend.compact()
        Suspects(root / "clusters" / "default" / "log").add(7)
    with FileBackend(root, "another") as backend:
        backend.commit(Create("k", b""))

    made = [(path.stat().st_uid, path.stat().st_gid) for path in root.rglob("*")]
    assert len(made) > 10
    assert set(made) == {owner}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files away")
def test_root_gives_nothing_away_that_it_did_not_make(tmp_path: Path) -> None:
    """The owner of the folder may put links into it: root then neither opens nor makes a file
    elsewhere, nor gives one to that owner."""
    owner, root = 65534, tmp_path / "made"
    (root / "clusters" / "default" / "log").mkdir(parents=True)
    (root / "clusters" / "default" / "leader").mkdir()
    (root / MARKER).write_text('{"format": "jrs", "version": 2}')
    victim, absent = tmp_path / "victim", tmp_path / "absent"
    victim.write_text("root:x:")
    log = root / "clusters" / "default" / "log" / f"{0:020}.log"
    log.symlink_to(victim)
    mark = damage.acceptance_mark(log, 0)
    mark.symlink_to(absent)
    for path in [root, *root.rglob("*")]:
        os.chown(path, owner, owner, follow_symlinks=False)

    with pytest.raises((InvalidInput, Unavailable)):
        FileBackend(root)
    with pytest.raises(OSError, match="symbolic links"):
        damage.accept(log, [0])

    assert (victim.stat().st_uid, victim.read_text()) == (0, "root:x:")
    assert not absent.exists()


def test_a_handle_that_is_dropped_ends_its_thread(tmp_path: Path) -> None:
    """A client that its user does not close keeps no thread and no descriptor."""
    root = tmp_path / "store"
    with FileBackend(root, cluster="dropped") as backend:
        backend.commit(Create("k", b""))
    for _ in range(3):
        handle = FileBackend(root, cluster="dropped")
        with handle.watch("") as watch:
            queued = handle.commit_async(Create("k2", b""))  # Is written although it is dropped.
            watch.wait(0)
        del handle, watch
        assert isinstance(queued.exception(BOUND), Conflict | None)

    def left() -> list[object]:
        gc.collect()
        files = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
        threads = [one for one in threading.enumerate() if one.name == "jrs-commits-dropped"]
        return [*threads, *(file for file in files if file.startswith(str(root)))]

    until(lambda: not left(), "the dropped handles to end")


def test_a_dropped_handle_does_not_delay_the_end(tmp_path: Path) -> None:
    """A process that closes no handle ends by itself, in whatever order its values go."""
    program = f"""
from pathlib import Path
from jrs.backends.file.backend import FileBackend
kept = [FileBackend(Path({str(tmp_path)!r}) / "store") for _ in range(3)]
kept.append(kept)
for handle in kept[:3]:
    handle.get("k")
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=BOUND
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_that_drops_a_handle_closes_no_file_of_its_own(tmp_path: Path) -> None:
    """As one that becomes a daemon: it has closed all files, and opened others in their place."""
    program = """
import gc, os, sys
from pathlib import Path
from jrs.backends.file.backend import FileBackend
handle = FileBackend(Path(sys.argv[1]))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.closerange(3, 256)
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
del handle
gc.collect()
for file in files:
    os.fstat(file)
os._exit(0)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    assert subprocess.run(command, timeout=BOUND, check=False).returncode == 0
