"""The etcd backend: transactions, leases and ranges of a server; nothing of its recipes."""

from jrs.backends.etcd.backend import EtcdBackend, open_etcd

__all__ = ["EtcdBackend", "open_etcd"]
