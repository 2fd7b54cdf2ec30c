"""The keys of the table ``meta`` that admins' actions set."""

PAUSED = "paused"
"""Whether the run is paused, "1" or "0"."""

STOP_VERSIONS = "stop_versions"
"""The version at which the run ends, if an admin has extended it."""
