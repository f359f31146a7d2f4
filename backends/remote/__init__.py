"""What the backends of a server share: addresses, diagnostics, the guardian process."""
