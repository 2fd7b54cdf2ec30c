"""The server process: start, listen, stop, administration."""
