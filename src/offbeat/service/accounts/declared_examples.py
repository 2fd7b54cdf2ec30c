"""How many examples each client has declared."""

from collections.abc import Sequence

from offbeat.service.refusal import Refusal


class DeclaredExamples:
    """The clients' numbers of examples, each of which is declared once.

    Args:
        clients: Number of clients N.
        most: The largest number that a client may declare; None for any.
    """

    def __init__(self, clients: int, most: int | None) -> None:
        self._clients = clients
        self._most = most
        self._examples: dict[int, int | None] = {}  # by client; None: not declared
        self._revoked: set[int] = set()

    def set(self, client: int, examples: int | None) -> None:
        """Record what a client has declared; None if it has enrolled without."""
        self._examples[client] = examples

    def revoke(self, client: int) -> None:
        """Record that a client is revoked, so that it need not declare anything."""
        self._revoked.add(client)

    def is_known(self, client: int) -> bool:
        """Return whether a client has declared its number of examples."""
        return self._examples[client] is not None

    def check(self, client: int, examples: int) -> None:
        """Raise ``Refusal`` if a client holds too many examples, or another number than it has declared."""
        declared = self._examples[client]
        if declared is None:
            self.check_most(examples)
        elif declared != examples:
            raise Refusal(
                "wrong-examples",
                f"the client has declared {declared} examples, not {examples}: train on those, or enrol again",
            )

    def check_most(self, examples: int) -> None:
        """Raise ``Refusal`` if these are more examples than a client may declare."""
        if self._most is not None and examples > self._most:
            raise Refusal("too-many-examples", f"a client may declare at most {self._most} examples, not {examples}")

    def missing(self) -> int:
        """Return how many of the N clients have not enrolled, or not declared their examples."""
        known = sum(examples is not None or client in self._revoked for client, examples in self._examples.items())
        return self._clients - known

    def all(self) -> list[int] | None:
        """Return how many examples each of the N clients holds, 0 for one that was revoked before it declared them.

        None as long as one of the others has not enrolled or not declared its examples, and if there are no examples.
        """
        if self.missing():
            return None
        examples = [self._examples[client] or 0 for client in range(self._clients)]
        return examples if any(examples) else None


def within_share(examples: Sequence[int], max_share: float) -> list[int]:
    """Return the numbers by which clients are weighed, such that none of three or more has a larger share.

    Args:
        examples: How many examples each of the N clients holds.
        max_share: The largest share of one client, at least ½, so that one client at most has more.
    """
    largest = max(examples)
    if max_share == 1 or sum(number > 0 for number in examples) < 3:
        return list(examples)
    most = int((sum(examples) - largest) * max_share / (1 - max_share))
    return [min(number, most) for number in examples]
