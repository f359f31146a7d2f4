"""The units as this machine runs them: their settings, with the folders of a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from jrs import connect
from jrs.testing.servers.certificates import Certificates, make_certificates
from tests.deploy.found import JRS, KIT, running
from tests.support import until

FOLDER = KIT / "systemd"
API = FOLDER / "jrs-api.service"
BACKEND = FOLDER / "backend.env"


def settings(*files: Path) -> list[tuple[str, str]]:
    """Return the settings of a unit and its drop-ins, in order."""
    text = "\n".join(file.read_text() for file in files).replace("\\\n", " ")
    return re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)


def setting(name: str, *files: Path) -> str:
    """Return the last value of a setting."""
    return [value for key, value in settings(*files) if key == name][-1]


def resolved(text: str, folder: Path) -> str:
    """Return a text with the specifiers of the instance 1, and this machine's folders."""
    for theirs, ours in (
        ("%i", "1"), ("%l", "host1"), ("%H", "host1"), ("%d", folder), ("/run/jrs", folder),
        ("/etc/jrs", folder), ("/var/cache/jrs", folder / "cache"), ("/opt/jobs", folder),
        ("/opt/jrs/bin/jrs", JRS),
    ):  # fmt: skip
        text = text.replace(theirs, str(ours))
    return text


def environment(folder: Path, *files: Path) -> dict[str, str]:
    """Return the variables of units and drop-ins, and those of files of variables."""
    given = [
        f"{key}={value}" if file.suffix == ".env" else value
        for file in files
        for key, value in settings(file)
        if key == "Environment" or file.suffix == ".env"
    ]
    return dict(resolved(value, folder).split("=", 1) for value in given)


def command(file: Path, folder: Path, variables: dict[str, str]) -> list[str]:
    """Return the command line of a unit."""
    text = resolved(setting("ExecStart", file), folder)
    for name, value in {"CREDENTIALS_DIRECTORY": str(folder), **variables}.items():
        text = text.replace(f"${{{name}}}", value)
    assert "$" not in text, text
    return shlex.split(text)


@attrs.frozen
class RunningApi:
    """The API as its unit starts it, below a folder that has all of its files."""

    folder: Path
    certificates: Certificates
    token: str
    port: int

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"


def install(made: Certificates, folder: Path) -> None:
    """Put the certificate of the API where its unit looks for it."""
    (folder / "api.pem").write_bytes(made.cert.read_bytes())
    (folder / "api-key.pem").write_bytes(made.key.read_bytes())
    (folder / "api-key.pem").chmod(0o640)  # As docs/production.md says.


@contextmanager
def running_api(folder: Path, token: str, **variables: str) -> Iterator[RunningApi]:
    """Run the command of the API's unit meanwhile, on a cluster that has one job.

    Args:
        token: of the role read.
        variables: what /etc/jrs/api.env has.
    """
    (folder / "tls").mkdir()
    made = make_certificates(folder / "tls")
    install(made, folder)
    (folder / "tokens").write_text(f"read {token} one\n")
    (folder / "tokens").chmod(0o640)
    backend = f"file://{folder}/cluster"
    (folder / "jrs.toml").write_text(f'backend = "{backend}"\n')
    with connect(backend) as client:
        client.submit("etl:nightly", id="nightly", check=False)  # Which creates the cluster.
    given = {**environment(folder, API), **variables}
    words = [word.replace("0.0.0.0:8443", "127.0.0.1:0") for word in command(API, folder, given)]
    log = folder / "log"
    with running(words, log, given, folder):
        at = until(lambda: re.search(r" at 127[\d.]+:(\d+)", log.read_text()), "it listens")
        yield RunningApi(folder, made, token, int(at[1]))
