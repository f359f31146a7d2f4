"""The units: systemd finds nothing to say, they give up every right, and the command of a master's
unit, with its environment and its credentials, works."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

import pytest
import yaml

from jrs.cli.common import DEFAULT_TTL
from jrs.testing.servers.certificates import Certificates, make_certificates
from tests.deploy.commands import parse
from tests.deploy.found import JRS, KIT, output, running, tool
from tests.deploy.units import (
    API,
    BACKEND,
    FOLDER,
    command,
    environment,
    install,
    running_api,
    setting,
    settings,
)
from tests.support import until

UNITS = ("jrs-master@.service", "jrs-api.service")
CREDENTIALS = FOLDER / "jrs-master@.service.d" / "credentials.conf"
LISTEN = FOLDER / "jrs-master@.service.d" / "listen.conf"
STORAGE = FOLDER / "storage.conf"
MOST_EXPOSED = 35
"""Of 100 points that systemd gives to a service without any limit."""


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing(name: str, tmp_path: Path) -> None:
    """With the drop-in, and with this machine's jrs as the program."""
    program = tool("systemd-analyze", "apt-get install systemd")
    unit = tmp_path / name
    unit.write_text((FOLDER / name).read_text().replace("/opt/jrs/bin/jrs", str(JRS)))
    (tmp_path / f"{name}.d").mkdir()
    for drop_in in (CREDENTIALS, STORAGE):
        (tmp_path / f"{name}.d" / drop_in.name).write_text(drop_in.read_text())

    assert output([program, "verify", "--man=no", "--recursive-errors=one", unit]) == ""


def test_systemd_finds_a_mistake(tmp_path: Path) -> None:
    """The test above can fail."""
    program = tool("systemd-analyze", "apt-get install systemd")
    unit = tmp_path / "jrs-api.service"
    text = (FOLDER / "jrs-api.service").read_text().replace("/opt/jrs/bin/jrs", str(JRS))
    unit.write_text(text.replace("ProtectHome=yes", "ProtectHomes=yes"))

    assert "Unknown key" in output([program, "verify", "--man=no", unit])


@pytest.mark.parametrize("name", UNITS)
def test_it_gives_up_its_rights(name: str) -> None:
    program = tool("systemd-analyze", "apt-get install systemd")
    said = output([
        program, "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager",
        FOLDER / name,
    ])  # fmt: skip

    assert "Overall exposure level" in said
    assert setting("User", FOLDER / name) == "jrs"
    assert setting("CapabilityBoundingSet", FOLDER / name) == ""


@pytest.mark.parametrize("name", UNITS)
def test_jrs_takes_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("tokens", "api.pem", "api-key.pem"):
        (tmp_path / file).touch(0o600)
    words = command(FOLDER / name, tmp_path, environment(tmp_path, FOLDER / name))

    parse(["jrs", *words[1:]])


def test_the_api_reads_what_its_operator_changes(tmp_path: Path) -> None:
    """A token that is removed is refused, and a certificate that is renewed is used. A credential
    of systemd would stay as it was when the unit started."""
    assert not [key for key, _ in settings(API) if key == "LoadCredential"]
    (tmp_path / "renewed").mkdir()
    renewed = make_certificates(tmp_path / "renewed")
    curl = [tool("curl", "apt-get install curl"), "--silent"]
    token, other = secrets.token_hex(16), secrets.token_hex(16)
    with running_api(tmp_path, token) as api:

        def answer(made: Certificates = api.certificates) -> str:
            header = f"Authorization: Bearer {token}"
            told = [
                "--cacert",
                str(made.ca),
                "--output",
                "/dev/null",
                "--write-out",
                "%{http_code}",
            ]
            return output([*curl, *told, "--header", header, f"{api.url}/v1/overview"])

        assert answer() == "200"
        (tmp_path / "tokens").write_text(f"read {other} two\n")
        assert answer() == "401"
        install(renewed, tmp_path)
        assert answer(renewed) == "401"


def test_the_name_of_the_api(tmp_path: Path) -> None:
    """Callers may ask for the name that api.env gives, and for no other one."""
    curl = [tool("curl", "apt-get install curl"), "--silent"]
    token = secrets.token_hex(16)
    with running_api(tmp_path, token, API_NAME="jrs.example.org") as api:

        def answer(host: str) -> str:
            told = ["--cacert", str(api.certificates.ca), "--output", "/dev/null"]
            told += ["--write-out", "%{http_code}", "--header", f"Authorization: Bearer {token}"]
            return output([*curl, *told, "--header", f"Host: {host}", f"{api.url}/v1/overview"])

        assert answer("jrs.example.org") == "200"
        assert answer("other.example.org") == "421"


def test_no_secret_is_on_a_command_line() -> None:
    """Every secret is a credential, or in a file that the manager reads."""
    for name in UNITS:
        for key, value in settings(FOLDER / name, CREDENTIALS):
            if key in ("ExecStart", "Environment"):
                assert "PASSWORD" not in value
                assert "SPEC_KEY_FILE" not in value or "%d/" in value


@pytest.mark.parametrize("name", UNITS)
def test_a_storage_elsewhere(name: str) -> None:
    """With its drop-in each unit may write there, and share with a group what it makes."""
    unit = FOLDER / name

    assert setting("ProtectSystem", unit, STORAGE) == "strict"
    assert setting("ReadWritePaths", unit, STORAGE) == "/srv/jrs"
    assert setting("RestrictSUIDSGID", unit, STORAGE) == "no"


def test_each_unit_keeps_the_same_copies_of_objects() -> None:
    """They are in one folder on all hosts, which outlives a restart."""
    places = {environment(Path("/x"), FOLDER / name).get("JRS_WORK") for name in UNITS}

    assert places == {"/x/cache/work"}
    assert {setting("CacheDirectory", FOLDER / name) for name in UNITS} == {"jrs"}


def test_each_master_listens_at_a_port_that_is_scraped(tmp_path: Path) -> None:
    """Those of one host at ports of their own: the port has the name of the instance."""
    listens = setting("Environment", FOLDER / UNITS[0], LISTEN)
    config = yaml.safe_load((KIT / "prometheus" / "prometheus.yml").read_text())
    [job] = (job for job in config["scrape_configs"] if job["job_name"] == "jrs")
    [targets] = job["static_configs"]

    assert listens == "LISTEN=0.0.0.0:800%i"
    assert targets["targets"] == ["host1:8001", "host1:8002"]
    words = command(FOLDER / UNITS[0], tmp_path, environment(tmp_path, FOLDER / UNITS[0], LISTEN))
    assert words[words.index("--listen") + 1] == "0.0.0.0:8001"


def test_each_unit_has_the_keys_of_objects() -> None:
    """Masters, the API and the command read them from the file that the kit puts them into."""
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= environment(Path("/x"), BACKEND).keys()
    for name in UNITS:
        assert ("EnvironmentFile", "-/etc/jrs/backend.env") in settings(FOLDER / name)
    assert "EnvironmentFile=-/etc/jrs/backend.env" in (FOLDER / "jrs").read_text()


def test_certificates_are_read_in_place() -> None:
    """A credential is a copy: a certificate that is renewed would never be used."""
    for name in UNITS:
        for key, value in settings(FOLDER / name, CREDENTIALS):
            assert key != "LoadCredential" or ".pem" not in value


def test_how_it_stops() -> None:
    """It has more time than its attempts need, and nothing kills what outlives it on purpose."""
    unit = FOLDER / UNITS[0]

    assert float(setting("TimeoutStopSec", unit)) >= DEFAULT_TTL + 30
    # Else systemd may kill the guardian of a master that was killed, so that the next one waits for
    # the ttl; or it kills the attempts of one that stops, and their deaths count.
    assert setting("KillMode", unit) == "process"
    assert setting("OOMPolicy", unit) == "continue"


def test_the_master_of_the_unit_works(tmp_path: Path) -> None:
    """Its command with its environment and its credentials answers probes, and ends by SIGTERM with
    status 0."""
    unit, tls = FOLDER / UNITS[0], tmp_path / "tls"
    tls.mkdir()
    made = make_certificates(tls)
    for name, file in (
        ("ca", made.ca),
        ("client", made.client_cert),
        ("client-key", made.client_key),
    ):
        (tmp_path / f"{name}.pem").write_bytes(file.read_bytes())
    (tmp_path / "spec.key").write_text(secrets.token_hex(32) + "\n")
    (tmp_path / "spec.key").chmod(0o400)
    (tmp_path / "jrs.toml").write_text(f'backend = "file://{tmp_path}/cluster"\n')
    given = environment(tmp_path, unit, CREDENTIALS, BACKEND)
    # Nothing but etcd uses these.
    assert {"JRS_BACKEND_CA", "JRS_BACKEND_CERT", "JRS_BACKEND_KEY"} <= given.keys()
    words = command(unit, tmp_path, given)
    log = tmp_path / "log"
    curl = [tool("curl", "apt-get install curl"), "--silent", "--fail", "--unix-socket"]
    socket = tmp_path / "master-1.sock"
    with running(words, log, given, tmp_path) as master:
        until(socket.exists, "it listens")
        until(lambda: "host1-1 leads" in log.read_text(), "it leads")
        assert output([*curl, socket, "http://localhost/leader"]) == "yes\n"
    assert master.returncode == 0, log.read_text()


@pytest.mark.parametrize("errors_apart", [True, False])
def test_the_command_keeps_errors_apart(tmp_path: Path, errors_apart: bool) -> None:
    """With `2>FILE` on a terminal, errors went to the terminal. The journal has no argument."""
    run = tmp_path / "systemd-run"
    run.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\n')
    run.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    here, terminal = os.openpty()
    try:
        subprocess.run(
            ["sh", FOLDER / "jrs", "submit", "--arg", "password=x"],
            env={"PATH": path}, stdin=terminal, stdout=terminal, check=True,
            stderr=subprocess.PIPE if errors_apart else terminal,
        )  # fmt: skip
    finally:
        os.close(here)
        os.close(terminal)
    words = (tmp_path / "words").read_text().splitlines()
    assert ("--pipe" in words, "--pty" in words) == (errors_apart, not errors_apart)
    assert "--description=A command of jrs" in words
