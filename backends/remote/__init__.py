"""The shared parts of server backends: addresses, diagnostics, the guardian process."""
