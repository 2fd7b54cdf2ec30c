"""The buffer of masked updates that stands for an algorithm's own."""

from typing import TYPE_CHECKING, Any

from offbeat.algorithms.components.buffers.aggregate import Aggregate
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.secret_latest_of_each import SecretLatestOfEach
from offbeat.algorithms.components.buffers.secret_sum import SecretSum
from offbeat.algorithms.components.buffers.wrappers import Wrap

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm


def secret(*, step: float, bound: int, least: int) -> Wrap:
    """Return a function that replaces a buffer by one of masked updates.

    The arguments are those of ``SecretSum``.
    """

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        buffer = check_private_sum(algorithm, is_masked=True)
        kind = SecretLatestOfEach if algorithm.payload == "difference" else SecretSum
        averages_all_clients = algorithm.averages_all_clients
        return kind(buffer, step=step, bound=bound, least=least, averages_all_clients=averages_all_clients)

    return wrap
