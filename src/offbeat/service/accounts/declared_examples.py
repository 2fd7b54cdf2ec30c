"""The numbers of examples that clients declare."""

from collections.abc import Mapping, Sequence

from offbeat.service.accounts.registry import Site
from offbeat.service.refusal import Refusal


class DeclaredExamples:
    """The N clients' numbers of examples, declared once, ``max_examples`` at most.

    ``sites`` are the enrolled clients by their numbers. Nothing waits for the examples of revoked ones.
    """

    def __init__(self, sites: Mapping[int, Site], clients: int, max_examples: int | None) -> None:
        self._sites = sites
        self._clients = clients
        self._max_examples = max_examples

    def grow(self, clients: int) -> None:
        """Expect so many clients."""
        self._clients = clients

    def of(self, client: int) -> int | None:
        """Return a client's number of examples; None if it has not declared it."""
        return self._sites[client].examples

    def is_known(self, client: int) -> bool:
        """Return whether a client has declared its number of examples."""
        return self._sites[client].examples is not None

    def check(self, client: int, examples: int) -> None:
        """Refuse examples that are too many or not as declared."""
        declared = self._sites[client].examples
        if declared is None:
            self.check_maximum(examples)
        elif declared != examples:
            raise Refusal(
                "wrong-examples",
                f"the client has declared {declared} examples, not {examples}: train on those, or enrol again",
            )

    def check_maximum(self, examples: int) -> None:
        """Refuse examples that are too many."""
        most = self._max_examples
        if most is not None and examples > most:
            raise Refusal("too-many-examples", f"a client may declare at most {most} examples, not {examples}")

    def missing(self) -> int:
        """Return how many clients have not declared; revoked ones are not missing."""
        known = sum(site.examples is not None or site.revoked is not None for site in self._sites.values())
        return self._clients - known

    def all(self) -> list[int] | None:
        """Return each client's examples; None while some are missing or if all are 0."""
        if self.missing():
            return None
        examples = [self._sites[client].examples or 0 for client in range(self._clients)]
        return examples if any(examples) else None


def within_share(examples: Sequence[int], max_share: float) -> list[int]:
    """Return the clients' weights, none with a larger share than ``max_share``, ½ … 1.

    So at most one client's weight is cut, and only if three or more clients have examples.
    """
    largest = max(examples)
    if max_share == 1 or sum(number > 0 for number in examples) < 3:
        return list(examples)
    most = int((sum(examples) - largest) * max_share / (1 - max_share))
    return [min(number, most) for number in examples]
