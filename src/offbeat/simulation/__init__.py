"""The virtual world: an event queue around the coordinator."""
