"""The etcd backend, built on transactions, leases and ranges, not on etcd's recipes."""

from .backend import EtcdBackend, open_etcd

__all__ = ["EtcdBackend", "open_etcd"]
