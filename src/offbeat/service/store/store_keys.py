"""The keys of the table ``meta`` that actions of admins set."""

PAUSED = "paused"
"""Whether the run is paused, "1" or "0"."""

EXTENDED_FROM = "extended_from"
"""The version at which the run ended before its file was changed, until a server has started since."""

STOP_VERSIONS = "stop_versions"
"""The version at which the run ends, if an admin has extended it."""
