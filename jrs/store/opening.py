"""Opening a cluster: finds the backend by its URL and refuses an unknown format."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.registry import check_cluster, opener_of
from jrs.store.cluster_format import ensure_supported


def open_backend(url: str, *, cluster: str = "default", create: bool = True) -> Backend:
    """Open the backend that `url` names.

    Args:
        create: create the cluster if it does not exist.

    Raises:
        InvalidInput: the scheme is unknown or its packages are not installed; or the URL, folder or
            cluster id cannot be used.
        NoSuchCluster: without `create`, the cluster does not exist.
        AccessDenied: a wrong user or password, or no permission.
        UnsupportedVersion: the cluster's format is newer than this jrs.
        Unavailable: the backend does not answer.
        WrongAddress: the address or the certificates are wrong; waiting does not help.
    """
    check_cluster(cluster)
    backend = opener_of(url)(url, cluster, create)
    try:
        ensure_supported(backend, convert=create)
    except BaseException:
        backend.close()
        raise
    return backend
