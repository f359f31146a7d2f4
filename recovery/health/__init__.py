"""What a master tells about itself, from memory: probes and metrics, on a thread of its own."""
