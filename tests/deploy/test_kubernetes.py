"""The manifests: they are valid, every pod is without rights, `jrs` takes their command lines, and
what they start works together, with a real etcd that asks for certificates."""

from __future__ import annotations

import re
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from jrs.cli.common import DEFAULT_TTL
from jrs.testing.servers import ServerMissing
from jrs.testing.servers.certificates import Certificates, make_certificates
from jrs.testing.servers.fixtures import missing
from jrs.testing.servers.local import etcd_binary
from jrs.testing.servers.ports import Ports
from tests.deploy.commands import parse
from tests.deploy.found import JRS, KIT, output, running, status, tool
from tests.support import until

FILES = sorted((KIT / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", "1.37")
"""The first with native sidecars, and the newest that is known."""
JOBS = Path(__file__).parent / "jobs"


def documents() -> Iterator[dict[str, Any]]:
    for file in FILES:
        yield from yaml.safe_load_all(file.read_text())


def found(kind: str, name: str) -> dict[str, Any]:
    return next(d for d in documents() if (d["kind"], d["metadata"]["name"]) == (kind, name))


def pods() -> dict[str, dict[str, Any]]:
    """Return what each kind of pod has in it, by the name of what makes it."""
    made = {}
    for document in documents():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            made[document["metadata"]["name"]] = spec["template"]
    return made


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


PODS = sorted(pods())


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_valid(version: str) -> None:
    """kubernetes-validate, offline and strict, knows each field of each of them."""
    program = tool("kubernetes-validate", "pip install kubernetes-validate")
    said = output([program, "-k", version, "--strict", *FILES])

    assert said.count(" passed for ") == len(list(documents()))
    assert "WARN" not in said


def test_a_wrong_field_is_found(tmp_path: Path) -> None:
    """The test above can fail."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        FILES[-1].read_text().replace("restartPolicy: Always", "restartPolice: Always")
    )
    program = tool("kubernetes-validate", "pip install kubernetes-validate")
    with pytest.raises(AssertionError, match="restartPolice"):
        output([program, "-k", VERSIONS[-1], "--strict", wrong])


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_rights(name: str) -> None:
    """It fits the restricted standard, on a read-only root, without a token or a visible secret."""
    pod = pods()[name]["spec"]
    user = pod["securityContext"]

    assert user["runAsNonRoot"] is True
    assert user["runAsUser"] > 0
    assert user["fsGroup"] == user["runAsGroup"]
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    for container in containers(pods()[name]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        words = " ".join([*container.get("command", []), *container.get("args", [])])
        assert "password" not in words.lower()
    for volume in pod["volumes"]:
        if "secret" in volume:
            assert not volume["secret"]["defaultMode"] & stat.S_IRWXO


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_names_is_there(name: str) -> None:
    """Its mounts are volumes of its own, its ports have names, and its configuration exists."""
    pod = pods()[name]["spec"]
    claims = (
        found("StatefulSet", name)["spec"].get("volumeClaimTemplates", []) if "etcd" in name else []
    )
    volumes = {v["name"] for v in pod["volumes"]} | {c["metadata"]["name"] for c in claims}
    for container in containers(pods()[name]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for ask in ("httpGet", "tcpSocket"):
                if ask in container.get(probe, {}):
                    assert container[probe][ask]["port"] in ports
    for volume in pod["volumes"]:
        if "configMap" in volume:
            found("ConfigMap", volume["configMap"]["name"])
        if "persistentVolumeClaim" in volume:
            found("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])


@pytest.mark.parametrize("kind", ["Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"])
def test_selectors_find_their_pods(kind: str) -> None:
    """Each selects the pods of its own name, and no others."""
    for document in documents():
        spec = document["spec"] if document["kind"] == kind else {}
        chosen = spec.get("podSelector", spec.get("selector"))
        if chosen:
            chosen = chosen.get("matchLabels", chosen)
            fits = [
                name for name, pod in pods().items()
                if chosen.items() <= pod["metadata"]["labels"].items()
            ]  # fmt: skip
            assert fits == [document["metadata"]["name"]], document


def test_who_reaches_etcd() -> None:
    """Its policy admits the pods that connect to it, by a label that each of them has."""
    policy = found("NetworkPolicy", "jrs-etcd")["spec"]["ingress"][0]["from"]
    (label,) = (peer["podSelector"]["matchLabels"] for peer in policy)
    for name, pod in pods().items():
        has = label.items() <= pod["metadata"]["labels"].items()
        assert has == (name != "jrs-etcd"), name


def test_a_master_can_write_to_its_home() -> None:
    """Where Spark keeps the packages of jobs, whatever the environment says."""
    (home,) = re.findall(r"--home-dir (\S+)", (KIT / "Containerfile").read_text())
    spec = pods()["jrs-master"]["spec"]
    writable = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}

    assert mounts[home]["name"] in writable
    assert not mounts[home].get("readOnly")


@pytest.mark.parametrize("name", ["jrs-master", "jrs-api"])
def test_what_can_keep_copies_of_objects(name: str) -> None:
    """Both read and write a storage of objects by copies, at one place on all hosts."""
    spec = pods()[name]["spec"]
    writable = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}

    assert mounts["/var/tmp"] in writable


def test_time_to_stop() -> None:
    """A master has more time to end than it gives to its attempts and threads."""
    assert pods()["jrs-master"]["spec"]["terminationGracePeriodSeconds"] >= DEFAULT_TTL + 30


def test_a_disruption_leaves_one_that_works() -> None:
    """Evictions take one pod at a time, of as many as remain whole without one."""
    for name, least in (("jrs-etcd", 3), ("jrs-master", 2)):
        assert found("StatefulSet", name)["spec"]["replicas"] >= least
        assert found("PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1


# -- what they start, for real ------------------------------------------------------------------


def pem(folder: str, ca: Path, certificate: Path, key: Path) -> tuple[tuple[str, Path], ...]:
    """Return the files of a mounted Secret, and ours in their place."""
    return (
        (f"{folder}/ca.crt", ca),
        (f"{folder}/tls.crt", certificate),
        (f"{folder}/tls.key", key),
    )


@attrs.frozen
class Started:
    """What the manifests would start, with this machine's places in the place of the pods'."""

    folder: Path
    certificates: Certificates
    etcd: int
    master: int
    api: int

    def here(self, text: str) -> str:
        """Return a text of a manifest as it is on this machine."""
        ours, tls = self.certificates, self.folder
        for theirs, here in (
            *pem("/etc/etcd/tls", ours.ca, ours.cert, ours.key),
            *pem("/etc/jrs-api-tls", ours.ca, ours.cert, ours.key),
            *pem("/etc/jrs-tls", ours.ca, ours.client_cert, ours.client_key),
            ("/etc/jrs/", f"{tls}/"), ("/var/lib/etcd", tls / "etcd"),
            ("/srv/jrs", tls / "storage"), ("/run/jrs", tls / "run"), ("$(POD_NAME)", "jrs-etcd-0"),
            # One member is enough for what is tested.
            *((f",jrs-etcd-{n}=https://jrs-etcd-{n}.jrs-etcd.jrs.svc:2380", "") for n in (1, 2)),
            (",jrs-etcd-1.jrs-etcd.jrs.svc,jrs-etcd-2.jrs-etcd.jrs.svc", ""),
            ("etcd://jrs-etcd-0.jrs-etcd.jrs.svc", f"etcd://localhost:{self.etcd}"),
            ("jrs-etcd-0.jrs-etcd.jrs.svc:2379", f"localhost:{self.etcd}"),
            ("jrs-etcd-0.jrs-etcd.jrs.svc:2380", "127.0.0.1:@peer"),
            ("0.0.0.0:2379", f"127.0.0.1:{self.etcd}"), ("0.0.0.0:2380", "127.0.0.1:@peer"),
            ("0.0.0.0:2381", "127.0.0.1:@probes"), ("0.0.0.0:8008", f"127.0.0.1:{self.master}"),
            ("0.0.0.0:8443", f"127.0.0.1:{self.api}"),
        ):  # fmt: skip
            text = text.replace(str(theirs), str(here))
        return text

    def words(self, name: str, at: int = 0) -> list[str]:
        """Return the command line of a container."""
        container = containers(pods()[name])[at]
        return [self.here(word) for word in [*container.get("command", []), *container["args"]]]

    def environment(self, name: str, at: int = 0) -> dict[str, str]:
        """Return the environment of a container."""
        given = containers(pods()[name])[at]["env"]
        return {one["name"]: self.here(one["value"]) for one in given if "value" in one}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """The etcd of the manifests, a master, the API, and the API as a sidecar."""
    try:
        etcd_binary()
    except ServerMissing as error:
        missing(error)
    ports = Ports()
    for name in ("etcd", "run", "storage"):
        (tmp_path / name).mkdir()
    made = Started(tmp_path, make_certificates(tmp_path), ports.take(), ports.take(), ports.take())
    (tmp_path / "jrs.toml").write_text(made.here(found("ConfigMap", "jrs")["data"]["jrs.toml"]))
    peer, probes = str(ports.take()), str(ports.take())
    etcd = [
        word.replace("@peer", peer).replace("@probes", probes) for word in made.words("jrs-etcd")
    ]
    with ExitStack() as stack:

        def run(name: str, command: list[str], environment: dict[str, str]) -> None:
            log = tmp_path / f"{name}.log"
            stack.callback(lambda: print(name, log.read_text()[-3000:], sep="\n"))
            stack.enter_context(running(command, log, environment, JOBS))

        run("etcd", etcd, {})
        until(lambda: status(f"http://127.0.0.1:{probes}/health") == 200, "etcd is healthy")
        run("master", [str(JRS), *made.words("jrs-master")], made.environment("jrs-master"))
        # The API ends where there is no cluster yet; in the cluster it is started again.
        ready = containers(pods()["jrs-master"])[0]["readinessProbe"]["httpGet"]["path"]
        until(lambda: status(f"http://127.0.0.1:{made.master}{ready}") == 200, "a master is ready")
        run("api", [str(JRS), *made.words("jrs-api")], made.environment("jrs-api"))
        run("sidecar", [str(JRS), *made.words("nightly")], made.environment("nightly"))
        yield made
    ports.close()


def test_what_they_start_works(started: Started) -> None:
    """Each command line of the manifests runs: the probes of the master answer on the paths that
    they name, the job of the night is submitted through the sidecar's socket and finishes, and the
    API takes callers with a certificate alone."""
    master = containers(pods()["jrs-master"])[0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = master[probe]["httpGet"]["path"]
        url = f"http://127.0.0.1:{started.master}{path}"
        until(lambda: status(url) == 200, f"{path} answers")  # noqa: B023 - called at once
    assert status(f"http://127.0.0.1:{started.master}/no-probe") == 404

    sidecar = containers(pods()["nightly"])[0]
    ready = [started.here(word) for word in sidecar["startupProbe"]["exec"]["command"]]
    until(succeeds(lambda: output(ready)), "the sidecar's probe succeeds")
    # As the pod's own container does it, with the real shell and curl.
    tool("curl", "apt-get install curl")
    said = output(started.words("nightly", 1))
    assert '"FINISHED"' in said
    assert '"FINISHED"' in output(started.words("nightly", 1)), "a repeat is harmless"

    api = f"https://localhost:{started.api}/v1/cluster"
    until(lambda: status(api, started.certificates.client_context()) == 200, "the API answers")
    stranger = ssl.create_default_context(cafile=str(started.certificates.ca))
    assert status(api, stranger) == 0


def succeeds(call: Callable[[], object]) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            call()
        except AssertionError:
            return False
        return True

    return tried


@pytest.mark.parametrize("name", ["jrs-master", "jrs-api", "nightly"])
def test_jrs_takes_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image's entry point is `jrs`; it knows every option."""
    monkeypatch.chdir(tmp_path)
    made = make_certificates(tmp_path)
    words = Started(tmp_path, made, 1, 2, 3).words(name)

    parse(["jrs", *words])
