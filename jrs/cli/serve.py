"""``jrs serve``: the API and the page of a cluster, in a process of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jrs.cli.common import ClusterRef, spec_key_option, storage_option, with_cluster
from jrs.cli.connecting import connect
from jrs.cli.listening import LISTEN, default_address
from jrs.cli.log_format import log_format_option, log_to_stderr
from jrs.contract.errors import InvalidInput
from jrs.host.listening import Address
from jrs.host.signals import stopped_by_signals
from jrs.records.signing import SpecKey

if TYPE_CHECKING:
    from jrs.sidecar.serving import Tls

# Imported inside functions: jrs.sidecar, since starlette is an extra.

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("serve")
@click.option("--listen", "listens", type=LISTEN, metavar="unix:PATH|HOST:PORT",
              help="A socket that only you can open; or a TCP port, which needs tokens or client "
                   "certificates.  [default: CLUSTER.sock, for root in /run/jrs, else in "
                   "$XDG_RUNTIME_DIR/jrs]")  # fmt: skip
@click.option("--token-file", type=_FILE, metavar="FILE",
              help="Lines of 'read TOKEN [NAME]' or 'operate TOKEN [NAME]', or with "
              "certificate:NAME in place of a token. Only its owner, and perhaps its group, can "
              "read it; it is read again when it changes.")  # fmt: skip
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The server's certificate.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of the server's certificate.")
@click.option("--tls-client-ca", type=_FILE, metavar="FILE",
              help="Only owners of a certificate of this CA can connect.")  # fmt: skip
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="Another host name by which browsers may address this "
                   "server. Repeatable.")  # fmt: skip
@log_format_option
@spec_key_option
@storage_option
@with_cluster
def serve_command(
    ref: ClusterRef,
    listens: Address | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    hosts: tuple[str, ...],
    log_format: str,
    spec_key: SpecKey | None,
    storage: str | Path | None,
) -> int:
    """Serve the API and the page of a cluster, as one more client of it.

    It needs no leader. You may run several, on any host that reaches the backend. It prints where
    it listens. With --spec-key it signs the specs of the jobs that its callers submit or change.

    \b
    Examples:
      jrs serve
      jrs serve --listen unix:/run/jrs/api.sock
      jrs serve --listen 127.0.0.1:8080 --token-file /etc/jrs/tokens
    """
    tls = _tls(tls_cert, tls_key, tls_client_ca)
    try:
        from jrs.sidecar.serving import Guards, serve
    except ModuleNotFoundError as error:
        raise InvalidInput(f"jrs serve needs {error.name}: pip install 'jrs[api]'") from None
    guards = Guards(token_file, tls, hosts)
    log_to_stderr(log_format)
    log = logging.getLogger("jrs.sidecar")
    log.setLevel(logging.INFO)
    stop = threading.Event()

    def ready(at: Address) -> None:
        log.info("serving cluster %s at %s", ref.cluster, at, extra={"kind": "serving"})

    with connect(ref, storage=storage, spec_key=spec_key) as client, stopped_by_signals(stop):
        address = listens or default_address(ref.cluster)
        guards.check(address)
        serve(client, address, guards, stop, ready)
    return 0


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("TLS needs both --tls-cert and --tls-key")
    from jrs.sidecar.serving import Tls

    return Tls(certificate, key, client_ca)
