"""Setting the command line up: jrs.toml, where settings come from, completion, "did you mean"."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import jrs as face
from jrs.recovery.processes import memory
from jrs.recovery.spark import class_data
from tests.cli.conftest import Jrs
from tests.recovery.snapshots.fabricate import FakeJob
from tests.support import until


def test_init_writes_a_file_that_holds(jrs_here: Jrs, home: Path, url: str) -> None:
    """`jrs init` writes a commented file of TOML and overwrites none; commands read it."""
    assert jrs_here("--cluster", "etl", "init").returncode == 0
    text = (home / "jrs.toml").read_text()
    assert tomllib.loads(text) == {"backend": url, "cluster": "etl", "retention": {}}
    everything = "\n".join(line.removeprefix("# ") if " = " in line else "" for line in
                           text.replace("[retention]", "[retention] = ").splitlines())  # fmt: skip
    found = tomllib.loads(everything.replace("[retention] = ", "[retention]"))
    assert set(found) == {
        "backend",
        "cluster",
        "storage",
        "ttl",
        "slots",
        "warm",
        "preload",
        "retention",
    }

    again = jrs_here("init")
    assert (again.returncode, "is not overwritten" in again.stderr) == (2, True)
    assert (home / "jrs.toml").read_text() == text
    (home / "jrs.toml").write_text(everything.replace("[retention] = ", "[retention]"))
    assert jrs_here("config").returncode == 0  # All that is commented out is valid, too.


def test_init_stores_no_password(jrs_here: Jrs, home: Path) -> None:
    """A password of the URL gets into no file."""
    refused = jrs_here("--backend", "etcd://user:secret@host/x", "init")

    assert (refused.returncode, "secret" in refused.stderr) == (2, False)
    assert not (home / "jrs.toml").exists()


def test_the_doctor_has_the_ttl_of_the_masters(jrs_here: Jrs, home: Path) -> None:
    """Without `--ttl` it checks the one of the file, which `jrs master` uses: here a file backend
    does not allow it."""
    (home / "jrs.toml").write_text("ttl = 7200\n")
    looked = jrs_here("doctor", "--create")
    assert looked.returncode == 1
    assert "7200" in looked.stdout

    assert jrs_here("doctor", "--ttl", "60").returncode == 0


def test_where_settings_come_from(jrs_here: Jrs, home: Path, tmp_path: Path) -> None:
    """A flag comes before the environment, that before the file, and that before the default."""
    (home / "files").mkdir()
    (home / "jrs.toml").write_text(
        'backend = "file:///of/the/file"\ncluster = "c1"\nstorage = "files"\nttl = 7\n'
        '[retention]\nresults = "30d"\n'
    )

    def found(*args: str, **env: str) -> dict[str, tuple[object, str]]:
        done = jrs_here(*args, "--json", **env)
        assert done.returncode == 0, done.stderr
        return {
            name: (one["value"], one["source"]) for name, one in json.loads(done.stdout).items()
        }

    held = found("config")
    assert held["backend"][1] == "JRS_BACKEND"
    assert held["cluster"] == ("c1", "jrs.toml")
    assert held["storage"] == (str(home / "files"), "jrs.toml")
    assert (held["ttl"], held["slots"][0]) == ((7, "jrs.toml"), None)
    assert held["retention.results"] == ("30d", "jrs.toml")
    assert held["retention.logs"] == ("3d", "default")
    assert found("config", "--cluster", "c2")["cluster"] == ("c2", "--cluster")
    assert found("--cluster", "c2", "config")["cluster"] == ("c2", "--cluster")
    other = tmp_path / "other.toml"
    other.write_text("ttl = 3.5")
    held = found("config", JRS_CONFIG=str(other), JRS_STORAGE=str(tmp_path), JRS_BACKEND="")
    assert held["ttl"] == (3.5, str(other))
    assert held["storage"] == (str(tmp_path), "JRS_STORAGE")
    assert held["backend"] == (None, "default")
    hidden = found("config", "--backend", "etcd://user:secret@host/x")["backend"]
    assert hidden == ("etcd://host/x", "--backend")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("backend = ", "is not TOML"),
        ("backand = 'x'", "'backand'; did you mean 'backend'?"),
        ("ttl = 'long'", "ttl must be a number"),
        ("slots = true", "slots must be a whole number"),
        ("cluster = ''", "cluster: not a cluster id"),
        ("ttl = -5", "ttl: not a duration"),
        ("ttl = 0", "ttl: must be above 0"),
        ("slots = 0", "slots: 0 is not in the range"),
        ("warm = -1", "warm: -1 is not in the range"),
        ("[retention]\nresults = 30", "retention of results"),
        ("[retention]\nresults = 'soon'", "not an age: 'soon'"),
        ("[retention]\nresult = '3d'", "'result'"),
        ("[retention]\nlog-bytes-per-job = '3d'", "not a size"),
    ],
)
def test_a_bad_file_gets_one_line(jrs_here: Jrs, home: Path, text: str, says: str) -> None:
    """Whatever is wrong with the file: one line with the file and the setting, exit code 2."""
    (home / "jrs.toml").write_text(text)
    refused = jrs_here("list")

    assert (refused.returncode, refused.stderr.count("\n"), refused.stdout) == (2, 1, "")
    assert "jrs.toml" in refused.stderr
    assert says in refused.stderr


def test_a_missing_file_is_named(jrs_here: Jrs) -> None:
    """A file that the environment names has to be there."""
    refused = jrs_here("list", JRS_CONFIG="/nowhere/jrs.toml")

    assert (refused.returncode, "/nowhere/jrs.toml cannot be read" in refused.stderr) == (2, True)


def test_did_you_mean(jrs_here: Jrs, url: str) -> None:
    """A mistyped command, option or job id is answered with similar ones."""
    with face.connect(url) as client:
        client.submit("nowhere:never", id="nightly-2026-11-20")

    assert "did you mean 'explain'" in jrs_here("explian").stderr
    assert "did you mean 'verify'" in jrs_here("snapshot", "verfy").stderr
    assert "--cluster" in jrs_here("list", "--clustr", "x").stderr
    for command in ("show", "explain", "cancel", "suspend"):
        said = jrs_here(command, "nightly-2026-11-21").stderr
        assert "did you mean 'nightly-2026-11-20'?" in said, command


def test_completion(jrs: Jrs, url: str, tmp_path: Path) -> None:
    """Job ids are completed from the cluster; errors complete nothing, in silence."""
    with face.connect(url) as client:
        for name in ("nightly-1", "nightly-2", "other"):
            client.submit("nowhere:never", id=name)

    def completed(words: str, **env: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        done = jrs(_JRS_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count, **env)
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    assert completed("jrs show night") == ["nightly-1", "nightly-2"]
    assert "explain" in completed("jrs expl")
    assert completed(f"jrs --backend {url} --cluster empty show n") == []
    assert completed("jrs show n", JRS_BACKEND="file:///nowhere/at/all") == []
    assert completed("jrs show n", JRS_BACKEND="nonsense") == []


def test_completing_snapshots(jrs: Jrs, url: str, tmp_path: Path) -> None:
    """The snapshots of the job that the line names are completed, by number and name."""
    with face.connect(url) as client:
        storage = client._connection.storage()
        FakeJob(client.backend, storage).run(4).suspend()
        client.job("job").snapshots.create("before-upgrade")
    done = jrs(
        _JRS_COMPLETE="bash_complete", COMP_WORDS="jrs snapshot verify job be", COMP_CWORD="4"
    )

    assert done.stdout.strip() == "plain,before-upgrade"


def test_a_master_makes_no_archive_unasked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """U13: where little memory may be used no archive is made, and the log says why."""
    monkeypatch.setenv(class_data.FOLDER, str(tmp_path))
    (tmp_path / "spark.wanted").touch()
    monkeypatch.setattr(memory, "usable", lambda: 400 << 20)
    said: list[str] = []
    with class_data.Background(said.append, look=0.01):
        until(lambda: said, "it is said")

    assert "is not made: that needs 512 MB, and only 400 MB may be used here" in said[0]
    assert [path.name for path in tmp_path.iterdir()] == ["spark.wanted"]
