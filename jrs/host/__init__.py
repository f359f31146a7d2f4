"""This host and its processes: its boot, its filesystems, sockets, forks, and what they inherit."""
