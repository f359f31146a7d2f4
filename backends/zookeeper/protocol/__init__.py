"""A client of ZooKeeper's protocol, independent of jrs's map."""
