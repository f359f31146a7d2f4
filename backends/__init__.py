"""The backends: one module or folder each, found by URL scheme through an entry point."""
