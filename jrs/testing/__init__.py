"""For whoever writes a backend, or breaks one: the contract's test suite and its fault kit."""
