"""The one exception that users see; the client's package defines it."""

from offbeat_client.errors import MistakesError, OffbeatError, did_you_mean

__all__ = ["MistakesError", "OffbeatError", "did_you_mean"]
