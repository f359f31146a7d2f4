"""Opening a cluster: its backend by URL, refused if this version does not know its format."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.registry import check_cluster, opener_of
from jrs.store.cluster_format import ensure_supported


def open_backend(url: str, *, cluster: str = "default", create: bool = True) -> Backend:
    """Open the backend that `url` names; create its cluster where it does not exist, if told so.

    Raises:
        InvalidInput: unknown scheme, or one whose packages are not installed, or a URL, folder or
            cluster id that cannot be used, or (without `create`) that does not exist.
        AccessDenied: a wrong user or password, or no permission.
        UnsupportedVersion: the cluster's format is newer than this jrs.
        Unavailable: the backend does not answer.
        WrongAddress: it never will: the address or the certificates are wrong.
    """
    check_cluster(cluster)
    backend = opener_of(url)(url, cluster, create)
    try:
        ensure_supported(backend, convert=create)
    except BaseException:
        backend.close()
        raise
    return backend
