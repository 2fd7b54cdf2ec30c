"""What an algorithm asks of a client, tried before a run begins."""

import copy

from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.errors import OffbeatError
from offbeat.experiments.compression_table import checked
from offbeat.training.sending import check_sending


def check_first_visit(algorithm: Algorithm, model: Tensor, data_weights: Tensor, plan: LocalPlan) -> None:
    """Check that the algorithm takes the plan, and that clients can send what its own plan for them says.

    It is asked now, of a copy, because otherwise it is asked when the first client is given work, in mid-run.

    Args:
        algorithm: Left as it is.
        model: The initial model, float32 ``(d,)``.
        data_weights: How much each client's data weighs, ``(N,)``.
        plan: The run's plan for a visit.

    Raises:
        ValueError: It does not take the plan, or what it makes of it cannot be sent.
    """
    try:
        trial = copy.deepcopy(algorithm)
    except (TypeError, RuntimeError):  # the user's own may hold what cannot be copied
        first = plan
    else:
        try:
            trial.start(model, len(data_weights), data_weights)
        except TypeError as error:  # a part of the state that cannot be saved
            raise ValueError(str(error)) from None
        first = trial.assign(0, plan) if trial.slots() > 0 else plan
    try:
        checked("compression", first.compression)
    except OffbeatError as error:
        raise ValueError(f"the plan for a visit: {error}") from None
    check_sending(algorithm.payload, first, len(model))
