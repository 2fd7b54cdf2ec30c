"""What the server keeps on disk: the log, bodies, model files and backups."""
