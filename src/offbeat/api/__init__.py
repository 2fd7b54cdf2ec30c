"""``offbeat.simulate``: runs of given objects, their history and report."""
