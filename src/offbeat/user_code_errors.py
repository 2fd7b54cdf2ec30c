"""One line about an error in the user's code; the client's package defines it."""

from offbeat_client.user_code_errors import failure, said

__all__ = ["failure", "said"]
