"""From a configuration to a simulation or a server."""
