"""The contract of a backend, and what every room may use: errors, deadlines, bounded texts."""
