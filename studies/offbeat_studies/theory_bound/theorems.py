"""Theorems in the setting of an experiment's file."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from offbeat.algorithms import Algorithm, AsyncCommSGD, FedBuff, FedLaAvg, FedLuck
from offbeat.config.experiment_file import Experiment
from offbeat.theory import (
    Assumption,
    Bound,
    async_comm_bound,
    async_comm_step_size,
    fedbuff_bound,
    fedbuff_step_size,
    fedlaavg_bound,
    fedlaavg_max_staleness,
    fedlaavg_step_size,
    fedluck_bound,
)
from offbeat.theory.bound import at_least, equal
from offbeat_studies.theory_bound.constants import (
    Constant,
    Known,
    counts_equally,
    is_always_available,
    is_in_time,
    is_uniform,
    longest_gap,
    minibatch_variance,
    plain_steps,
    problem,
    rounds,
    staleness,
    step_size,
)

Values = Mapping[str, Any]  # of the constants, by argument of the bound


@dataclass(frozen=True)
class Setting:
    """A theorem with the constants of a file."""

    theorem: str  # its name and authors
    left_side: str  # the bounded quantity
    constants: Mapping[str, Constant]  # by argument of the bound
    bound: Callable[..., Bound]
    more: tuple[Assumption, ...]  # that ``bound`` does not check
    recommended_lr: Callable[[Values], float] | None = None  # by the paper, which may recommend none


def _fedbuff(experiment: Experiment, label: str, known: Known, algorithm: FedBuff) -> Setting:
    plan, population = experiment.plan(label), experiment.population
    stalest = staleness("τ", experiment, known)
    return Setting(
        "Theorem 1 of Toghani and Uribe (2022)",
        "(1/T) Σ_{t<T} E‖∇f(w_t)‖²",
        {
            "server_steps": rounds(experiment.stop, known, buffer_size=algorithm.buffer_size),
            "steps": Constant("Q", plan.steps, "local.steps"),
            "batch_size": Constant("b", plan.batch_size, "local.batch_size"),
            "lr": Constant("η", step_size(plan), "local.lr"),
            "clients": Constant("N", population.clients, "population.clients"),
            "server_lr": Constant("Kβ", algorithm.server_lr, "server_lr"),
            "max_staleness": stalest,
            **problem(known, "f", "w"),
            "variance": Constant("σ²", known.variance, "--variance"),
            "diversity": Constant("γ²", known.diversity, "--diversity"),
        },
        partial(
            fedbuff_bound,
            # Constant if the largest staleness has weight 1, because weights never grow with the staleness.
            constant_weights=stalest.value is not None and algorithm.staleness(int(stalest.value)) == 1,
            uniform_arrivals=is_uniform(population, algorithm.concurrency),
        ),
        _plain_steps(experiment, label, algorithm),
        lambda values: fedbuff_step_size(**_only(values, "server_steps", "steps", "smoothness")),
    )


def _fedlaavg(experiment: Experiment, label: str, known: Known, algorithm: FedLaAvg) -> Setting:
    plan, clients, cohort = experiment.plan(label), experiment.population.clients, algorithm.cohort
    oldest = Constant("I", known.max_staleness, "--max-staleness")
    least = fedlaavg_max_staleness(clients=clients, cohort=cohort, available_every=1)
    always = is_always_available(experiment.population)
    if known.max_staleness is None and always and not experiment.server.lease_seconds:
        oldest = Constant("I", least, "Lemma 2: in every round all clients are available and return")

    def recommended_lr(values: Values) -> float:
        # The smallest E for which Lemma 2 allows this I.
        every = math.ceil((values["max_staleness"] + 1) / math.ceil(clients / cohort))
        lr = fedlaavg_step_size(
            **_only(values, "rounds", "steps", "clients", "smoothness"), cohort=cohort, available_every=every
        )
        return min(lr, 1 / (4 * values["smoothness"]))

    theorem, left = ("Theorem 3", "(1/T) Σ_{t<T} E‖∇f(x_t)‖²")
    if plan.steps > 1:
        theorem, left = ("Appendix C", "(1/T) Σ_{r≤T} E‖∇f(x_{rC−1})‖²")
    return Setting(
        f"{theorem} of Yan et al. (2020)",
        left,
        {
            "rounds": rounds(experiment.stop, known),
            "steps": Constant("C", plan.steps, "local.steps"),
            "lr": Constant("γ", step_size(plan), "local.lr"),
            "clients": Constant("N", clients, "population.clients"),
            "server_lr": Constant("server_lr", algorithm.server_lr, "server_lr"),
            "max_staleness": oldest,
            **problem(known, "f", "x"),
            "variance": minibatch_variance(known, plan),
            "gradient_bound": Constant("G", known.gradient_bound, "--gradient-bound"),
        },
        partial(fedlaavg_bound, equal_weights=counts_equally(experiment.population, algorithm.weighting)),
        (at_least("I", oldest.value or 0, "⌈N/K⌉ − 1", least), *_plain_steps(experiment, label, algorithm)),
        recommended_lr,
    )


def _async_comm_sgd(experiment: Experiment, label: str, known: Known, algorithm: AsyncCommSGD) -> Setting | str:
    if algorithm.step_sizes is not None:
        return "Theorem 2.4 needs one step size, not step_sizes; Theorem 2.2 is about another average than a run's"
    plan, clients, period = experiment.plan(label), experiment.population.clients, algorithm.period
    assert period is not None
    run = rounds(experiment.stop, known, period=period)
    # A round of C steps is C rounds of one step each, without communication in between.
    steps = gap = None
    gap_source = run.source
    if run.value is not None:
        steps = plan.steps * run.value
        rounds_apart, gap_source = longest_gap(algorithm.pattern, clients, int(run.value))
        gap = plan.steps * rounds_apart
    each = "" if plan.steps == 1 or steps is None else "local.steps · "
    return Setting(
        "Theorem 2.4 of Avdyukhin and Kasiviswanathan (2021)",
        "(1/T) Σ_{t<T} E‖∇f(x_t)‖²",
        {
            "rounds": Constant("T", steps, f"{each}{run.source}"),
            "max_gap": Constant("Δ", gap, f"{each}{gap_source}"),
            "lr": Constant("γ", step_size(plan), "local.lr"),
            "clients": Constant("N", clients, "population.clients"),
            **problem(known, "f", "x"),
            "variance": minibatch_variance(known, plan),
            "gradient_bound": Constant("G", known.gradient_bound, "--gradient-bound"),
        },
        partial(async_comm_bound, equal_weights=counts_equally(experiment.population, algorithm.weighting)),
        (
            is_in_time(experiment, plan, period),
            equal("server_lr", algorithm.server_lr, "1", 1),
            *_plain_steps(experiment, label, algorithm),
        ),
        lambda values: min(
            async_comm_step_size(**_only(values, "rounds", "clients", "smoothness")), 1 / (18 * values["smoothness"])
        ),
    )


def _fedluck(experiment: Experiment, label: str, known: Known, algorithm: FedLuck) -> Setting:
    plan = experiment.plan(label)
    (fewest, most), (smallest, largest) = algorithm.steps, algorithm.compression
    alike = fewest == most and smallest == largest
    ranges = f"k from {fewest} to {most} and δ from {smallest:g} to {largest:g}"
    which = "all visits'" if alike else "unmeasured clients'"
    return Setting(
        'the bound of "Theory for FedLuck", mended',
        "(1/T) Σ_{t<T} E‖∇F(w_t)‖²",
        {
            "rounds": rounds(experiment.stop, known, period=algorithm.period),
            "steps": Constant("k", min(max(plan.steps, fewest), most), which),
            "compression": Constant("δ", largest, which),
            "lr": Constant("η_l", step_size(plan), "local.lr"),
            "server_lr": Constant("η_g", algorithm.server_lr, "server_lr"),
            "max_staleness": staleness("τ_max − 1", experiment, known),
            **problem(known, "F", "w"),
            "variance": minibatch_variance(known, plan),
            "heterogeneity": Constant("ζ²", known.diversity, "--diversity"),
            "gradient_bound": Constant("G", known.gradient_bound, "--gradient-bound"),
        },
        partial(fedluck_bound, arrivals_every_period=True),
        (
            Assumption("every visit has the same k and δ" if alike else f"visits differ: {ranges}", alike),
            *_plain_steps(experiment, label, algorithm),
        ),
    )


def _plain_steps(experiment: Experiment, label: str, algorithm: Algorithm) -> tuple[Assumption, ...]:
    return plain_steps(algorithm, experiment.plan(label), experiment.server, experiment.privacy_of(label))


def _only(values: Values, *names: str) -> dict[str, Any]:
    return {name: values[name] for name in names}


# Looked up by the exact class: a theorem need not hold for a subclass.
THEOREMS: dict[type[Algorithm], Callable[[Experiment, str, Known, Any], Setting | str]] = {
    FedBuff: _fedbuff,
    FedLaAvg: _fedlaavg,
    AsyncCommSGD: _async_comm_sgd,
    FedLuck: _fedluck,
}
