"""Logins that fail."""


class LoginRefusedError(Exception):
    """A login that cannot succeed.

    The message is a line for the person; the answer has the HTTP ``status``.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ProviderError(Exception):
    """The provider does not answer, or wrongly.

    The message is a line for the server's log.
    """
