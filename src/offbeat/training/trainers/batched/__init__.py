"""Many clients as one computation."""
