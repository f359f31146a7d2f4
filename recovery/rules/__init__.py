"""The rules: pure functions and values, without I/O."""
