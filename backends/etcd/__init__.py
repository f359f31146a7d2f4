"""The etcd backend: transactions, leases and ranges of a server; nothing of its recipes."""

from .backend import EtcdBackend, open_etcd

__all__ = ["EtcdBackend", "open_etcd"]
