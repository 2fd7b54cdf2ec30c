"""Several runs on one server, with sites and tokens in common."""
