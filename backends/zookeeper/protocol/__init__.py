"""A client of ZooKeeper's protocol. It knows nothing of the map that is kept there."""
