"""The HTTP server's process: sockets, certificates, limits of connections, logs."""
