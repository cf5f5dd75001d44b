"""Inside the engine (plug-in) and beside it (sidecar). The standard library only; prometheus_client in the sidecar alone."""
