"""A client as lists show it."""

from offbeat_core.messages import Answer

from offbeat.service.tally.client_tally import Counts


class ListedClient(Answer):
    """A client with the counts of its visits; times are in Unix seconds.

    ``revoked`` is null for a client that is not revoked.
    """

    client: int
    name: str
    enrolled: float
    last_seen: float | None
    visits: int
    counted: int
    refused: int
    lost: int
    mean_staleness: float | None
    revoked: float | None
    working: bool


def listed_client(client: int, name: str, enrolled: float, revoked: float | None, counts: Counts) -> ListedClient:
    """Return the entry of a client."""
    return ListedClient(
        client=client,
        name=name,
        enrolled=enrolled,
        last_seen=counts.last_seen,
        visits=counts.visits,
        counted=counts.counted,
        refused=counts.refused,
        lost=counts.lost,
        mean_staleness=counts.mean_staleness,
        revoked=revoked,
        working=counts.state == "working",
    )
