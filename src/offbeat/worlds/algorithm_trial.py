"""What an algorithm asks of a client, tried before a run begins."""

import copy

import torch
from torch import Tensor

from offbeat import algorithms
from offbeat.algorithms import Algorithm, LocalPlan, Update
from offbeat.algorithms.components import WrongStepError
from offbeat.config.compression_table import checked
from offbeat.coordinator.algorithm_checks import check_answer, check_declarations, check_down, check_model
from offbeat.errors import OffbeatError
from offbeat_client.sending import check_sending


def check_first_visit(algorithm: Algorithm, model: Tensor, data_weights: Tensor, plan: LocalPlan) -> None:
    """Check that the algorithm takes the plan, and that clients can send what its own plan for them says.

    It is asked now, of a copy, because otherwise it is asked when the first client is given work, in mid-run.

    Args:
        algorithm: Left as it is.
        model: The initial model, float32 ``(d,)``.
        data_weights: How much each client's data weighs, ``(N,)``.
        plan: The run's plan for a visit.

    Raises:
        ValueError: Its payload or selection does not exist; it does not take the plan, or what it makes of it cannot
            be sent; or, of an algorithm that is not built in, it does not answer or compute what it must.
    """
    check_declarations(algorithm)
    plans: dict[int, LocalPlan] = {}
    try:
        trial = copy.deepcopy(algorithm)
    except (TypeError, RuntimeError):  # the user's own may hold what cannot be copied
        pass
    else:
        try:
            trial.start(model, len(data_weights), data_weights)
        except TypeError as error:  # a part of the state that cannot be saved
            raise ValueError(str(error)) from None
        check_down(trial, len(model))
        if algorithm.measures:
            trial.note_speed(0, 1.0, 1.0)  # and not of client 1
        while trial.slots() > 0 and len(plans) < min(1 + algorithm.measures, len(data_weights)):
            plans[len(plans)] = trial.assign(len(plans), plan)
        if plans and not type(algorithm).__module__.startswith(f"{algorithms.__name__}."):
            _check_first_version(trial, dict(plans), plan, len(data_weights), len(model))
    for first in list(plans.values()) or [plan]:
        try:
            checked("compression", first.compression)
        except OffbeatError as error:
            raise ValueError(f"the plan for a visit: {error}") from None
        check_sending(algorithm.payload, first, len(model))
        if algorithm.corrects_gradients and first.error_feedback:
            raise ValueError(
                f"clients of {algorithm.name} remember c_i, not what compression left out: leave error_feedback out"
            )


def _check_first_version(
    trial: Algorithm, plans: dict[int, LocalPlan], local: LocalPlan, clients: int, length: int
) -> None:
    """Let clients hand in updates of zeros up to the first version, and check each answer and the model."""
    while trial.slots() > 0 and len(plans) < clients:
        client = len(plans)
        plans[client] = trial.assign(client, local)
    zeros = torch.zeros(length)
    for client, plan in plans.items():
        if trial.version > 0 or not trial.wants(client, 0):
            continue
        base = zeros if trial.needs_base else None
        update = Update(client, 0, zeros, 1, plan.steps, float(plan.steps), base, None, 1.0, 1.0, 1.0, plan)
        try:
            answer = trial.receive(update)
        except (ArithmeticError, ValueError):  # updates of zeros may be refused
            return
        check_answer("receive", answer)
    if trial.period is not None:
        check_answer("tick", trial.tick())
    try:
        check_model(trial.model, length)
    except WrongStepError as error:
        raise ValueError(str(error)) from None
