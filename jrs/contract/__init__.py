"""The contract of a backend, and the basics of every room: errors, deadlines, bounded texts."""
