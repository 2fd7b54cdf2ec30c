"""The server's folder, the state that the log's rows make, and backups."""
