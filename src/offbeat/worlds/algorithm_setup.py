"""Algorithms before a run: wrappers, guards and a dry run."""

import copy
from dataclasses import replace

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.sent_update import check_sending
from offbeat_core.user_code_errors import failure
from torch import Tensor

from offbeat import algorithms
from offbeat.algorithms import Algorithm, LocalPlan, Update
from offbeat.algorithms.components import Periodic, WrongStepError
from offbeat.algorithms.components.buffers.robust import robust
from offbeat.algorithms.components.buffers.secret import SecretSum
from offbeat.algorithms.components.buffers.wrappers import clip, limit
from offbeat.algorithms.components.schedules.patterns import Pattern
from offbeat.config.experiment_sections import ServerSection
from offbeat.config.local_section import check_compression
from offbeat.coordinator.algorithm_checks import (
    check_answer,
    check_declarations,
    check_down,
    check_model,
    method_failure,
)


def dry_run(algorithm: Algorithm, model: Tensor, data_weights: Tensor, plan: LocalPlan) -> None:
    """Check that the algorithm accepts the plan, and its plans can be done.

    Works on a copy. Without it, such an error would show during the run, when the first client gets an assignment.
    ``model`` is the initial one, float32 ``(d,)``; ``data_weights`` has the weight of each client's data, ``(N,)``.

    Raises ``ValueError`` if the payload or selection does not exist; if a plan is refused or cannot be sent; or if an
    algorithm that is not built in has a method that fails, gives a wrong answer or a wrong model.
    """
    check_declarations(algorithm)
    plan = replace(plan, steps_by=None).at(0)
    try:
        plans = _plans(algorithm, model, data_weights, plan)
    except (OffbeatError, ValueError):
        raise
    except Exception as error:
        line = str(error) if isinstance(error, WrongStepError) else method_failure(error)
        if line is None:
            raise
        raise ValueError(line) from error
    for made in plans or [plan]:
        try:
            check_compression("the plan for a visit: compression", made.compression)
        except OffbeatError as error:
            raise ValueError(str(error)) from None
        check_sending(algorithm.payload, made, len(model))
        if made.compression is not None and isinstance(getattr(algorithm, "buffer", None), SecretSum):
            raise ValueError("masked updates cannot be compressed: leave compression or privacy.helper out")
        if algorithm.corrects_gradients and made.error_feedback:
            raise ValueError(
                f"clients of {algorithm.name} remember c_i, not what compression left out: leave error_feedback out"
            )
        if algorithm.corrects_gradients and made.optimizer != "sgd":
            raise ValueError(f"the c_i of {algorithm.name} are means of plain gradients: leave optimizer out")


def _plans(algorithm: Algorithm, model: Tensor, data_weights: Tensor, plan: LocalPlan) -> list[LocalPlan]:
    """Return the plans of a copy of the algorithm, for known and unknown speeds."""
    try:
        trial = copy.deepcopy(algorithm)
    except (TypeError, RuntimeError):  # a user's algorithm may hold objects that cannot be copied
        return []
    clients = len(data_weights)
    try:
        trial.start(model, clients, data_weights)
    except TypeError as error:  # a part of the state that cannot be saved
        raise ValueError(method_failure(error) or str(error)) from None
    check_down(trial, len(model))
    if algorithm.measures:
        trial.note_speed(0, 1.0, 1.0)  # client 1 stays unmeasured
    plans: dict[int, LocalPlan] = {}
    while trial.slots() > 0 and len(plans) < min(1 + algorithm.measures, clients):
        plans[len(plans)] = trial.assign(len(plans), plan)
    if plans and not type(algorithm).__module__.startswith(f"{algorithms.__name__}."):
        _check_first_version(trial, dict(plans), plan, clients, torch.zeros_like(model))
    return list(plans.values())


def _check_first_version(
    trial: Algorithm, plans: dict[int, LocalPlan], local: LocalPlan, clients: int, zeros: Tensor
) -> None:
    """Upload updates of zeros until the first version; check answers and model."""
    while trial.slots() > 0 and len(plans) < clients:
        client = len(plans)
        plans[client] = trial.assign(client, local)
    for client, plan in plans.items():
        if trial.version > 0 or not trial.wants(client, 0):
            continue
        base = zeros if trial.needs_base else None
        update = Update(client, 0, zeros, 1, plan.steps, float(plan.steps), base, None, 1.0, 1.0, 1.0, plan)
        try:
            answer = trial.receive(update)
        except (ArithmeticError, ValueError):  # an algorithm may refuse updates of zeros
            return
        check_answer("receive", answer)
    if trial.period is not None:
        check_answer("tick", trial.tick())
    check_model(trial.model, len(zeros))


def wrap_buffer(algorithm: Algorithm, server: ServerSection) -> None:
    """Put the section's wrappers around the algorithm's buffer, before it is started."""
    is_robust = server.aggregate not in (None, "mean")
    keys = ("update_clip_norm", "max_update_norm", "max_step_norm")
    used = [key for key in keys if getattr(server, key) is not None] + ["aggregate"] * is_robust
    if used and type(algorithm).receive is not Algorithm.receive:
        raise ValueError(f"server.{used[0]} does not go with {algorithm.name}, which has a receive of its own")
    if is_robust and server.aggregate is not None:
        algorithm.wrap(robust(server.aggregate))
    if server.update_clip_norm is not None:
        algorithm.wrap(clip(server.update_clip_norm))
    if server.max_update_norm is not None:
        algorithm.wrap(limit(server.max_update_norm))  # outermost: it limits the norm before clipping
    if server.max_step_norm is not None:
        algorithm.max_step_norm = server.max_step_norm


def guard_pattern(algorithm: Algorithm) -> None:
    """Guard the algorithm's pattern, if it has one."""
    schedule = getattr(algorithm, "schedule", None)  # a user's algorithm may have none
    if isinstance(schedule, Periodic) and schedule.pattern is not None:
        schedule.pattern = guarded(schedule.pattern)


def guarded(pattern: Pattern) -> Pattern:
    """Return the pattern with checks of the user's rule.

    ``next_round`` then raises ``OffbeatError`` where the rule fails or exceeds its ``longest_gap``.
    """
    rule = pattern.own
    if rule is None:
        return pattern

    def call_rule(client: int, last: int, clients: int) -> int:
        try:
            return rule(client, last, clients)
        except (Exception, SystemExit) as error:
            raise failure(f"pattern {pattern.name} failed for client {client} after round {last}", error) from error

    called = replace(pattern, own=call_rule)

    def next_round(client: int, last: int, clients: int) -> int:
        try:
            number = called.next_round(client, last, clients)
        except ValueError as error:
            raise OffbeatError(str(error)) from None
        longest = pattern.longest_gap(clients)
        if number - last > longest:
            raise OffbeatError(
                f"pattern {pattern.name}: client {client} is to talk next in round {number}, {number - last} after "
                f"round {last}, but longest_gap is {longest}"
            )
        return number

    return replace(pattern, own=next_round)
