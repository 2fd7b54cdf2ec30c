"""The server's data on disk: the log, bodies, model files and backups."""
