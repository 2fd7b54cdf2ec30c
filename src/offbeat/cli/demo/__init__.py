"""``offbeat demo``: a server and its clients on one machine, some of them killed on the way."""
