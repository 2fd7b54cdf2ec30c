"""``offbeat demo``: server and clients as processes, some of which are killed."""
