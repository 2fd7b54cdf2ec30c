"""The buffer of masked updates that stands for an algorithm's own."""

from typing import TYPE_CHECKING, Any

from offbeat.algorithms.components.buffers.aggregate import Aggregate
from offbeat.algorithms.components.buffers.by_round import ByRound
from offbeat.algorithms.components.buffers.latest_of_each import LatestOfEach
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.secret_by_round import SecretByRound
from offbeat.algorithms.components.buffers.secret_latest_of_each import SecretLatestOfEach
from offbeat.algorithms.components.buffers.secret_sum import SecretSum
from offbeat.algorithms.components.buffers.wrappers import Wrap

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm

_KINDS: dict[type[Aggregate], type[SecretSum]] = {LatestOfEach: SecretLatestOfEach, ByRound: SecretByRound}


def secret(*, step: float, bound: int, least: int) -> Wrap:
    """Return a function that replaces a buffer by one of masked updates.

    The arguments are those of ``SecretSum``.
    """

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        buffer = check_private_sum(algorithm, is_masked=True)
        kind = next((kind for own, kind in _KINDS.items() if isinstance(buffer, own)), SecretSum)
        averages_all_clients = algorithm.averages_all_clients
        return kind(buffer, step=step, bound=bound, least=least, averages_all_clients=averages_all_clients)

    return wrap
