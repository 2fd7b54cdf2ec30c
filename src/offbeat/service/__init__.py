"""The real world: HTTP around the coordinator, a store that outlives any kill, and what clients need."""
