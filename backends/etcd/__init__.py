"""The etcd backend, built on transactions, leases and ranges, not on etcd's recipes."""
