"""For authors of backends: the test suite of the contract, and a kit of faults."""
