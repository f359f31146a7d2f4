"""Opening a cluster: finds the backend by its URL, and refuses an unknown format or a cluster that
is not here any more."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.errors import ClusterMoved, CorruptRecord, Refused, WrongState
from jrs.contract.guards import Closing
from jrs.contract.texts import when
from jrs.records import keys
from jrs.records.checks import check_cluster
from jrs.records.cluster import ClosedRecord
from jrs.records.codec import decode
from jrs.store.backend_schemes import opener_of
from jrs.store.cluster_format import ensure_supported


def open_backend(url: str, *, cluster: str = "default", create: bool = True) -> Backend:
    """Open the backend that `url` names.

    Args:
        create: create the cluster if it does not exist.

    Raises:
        InvalidInput: the scheme is unknown or its packages are not installed; or the URL, folder or
            cluster id cannot be used.
        NoSuchCluster: without `create`, the cluster does not exist.
        ClusterMoved: the cluster was moved to another backend; `.url` names it.
        WrongState: `jrs migrate` has not completed the cluster here.
        AccessDenied: a wrong user or password, or no permission.
        UnsupportedVersion: the cluster's format is newer than this jrs.
        Unavailable: the backend does not answer.
        WrongAddress: the address or the certificates are wrong; waiting does not help.
    """
    backend = open_closed(url, cluster=cluster, create=create)
    try:
        if backend.capabilities.multi_process:  # Nobody moves what ends with this process.
            backend.closing = closing_of(backend)
            backend.check_open()
        ensure_supported(backend, convert=create)
    except BaseException:
        backend.close()
        raise
    return backend


def open_closed(url: str, *, cluster: str, create: bool) -> Backend:
    """Open the backend that `url` names even if the cluster is closed: for `jrs migrate`.

    Raises:
        As `open_backend`, without what it says of a cluster that was moved, and of formats.
    """
    check_cluster(cluster)
    return opener_of(url)(url, cluster, create)


def closing_of(backend: Backend) -> Closing:
    """Return what closes the cluster, with the error that its record means."""
    here = f"cluster {backend.cluster!r} at {backend.url}"

    def error(value: bytes | None) -> Refused:
        try:
            closed = None if value is None else decode(ClosedRecord, value, keys.CLOSED)
        except CorruptRecord as damaged:
            return damaged
        if closed is None:
            return ClusterMoved(f"{here} is closed: it was moved; jrs masters says where it is")
        if closed.arriving:
            return WrongState(
                f"{here} is a copy of {closed.url} that is not complete: complete it with jrs "
                f"migrate --from {closed.url} --to {backend.url}"
            )
        return ClusterMoved(
            f"{here} was moved to {closed.url} by {closed.by}, {when(closed.at)}: name that "
            "backend, with --backend or JRS_BACKEND",
            closed.url,
        )

    return Closing(keys.CLOSED, error)
