"""Stand-ins for a cluster that serve the real interfaces on loopback."""
