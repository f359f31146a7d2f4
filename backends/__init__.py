"""The backends: one module or folder each, with an entry point for its URL scheme."""
