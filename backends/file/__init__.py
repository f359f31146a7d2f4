"""The file backend: a shared log in a folder, without a server and without locks on writing."""
