"""The papers' convergence bounds as functions, their assumptions as data.

Each paper has a file. A bound is a ``Bound``: a value and its assumptions. ``bound.broken`` lists the assumptions that
a setting does not meet, for instance "T = 1000 is below 160 L (Q + 7)(τ + 1)³ = 1280". Each function raises a
``ValueError`` for a constant out of range. ``offbeat theory measure`` measures all bounds.

The names, and the papers' symbols: ``smoothness`` L · ``strong_convexity`` λ · ``initial_error`` f(x_0) − f* ·
``variance`` σ² · ``gradient_bound`` G · ``round_number`` t · ``rounds``, ``server_steps`` T or R, of the whole run ·
``steps`` Q, C, k, of one visit · ``clients`` N or n · ``cohort`` K · ``lr`` the clients' step size γ, η, η_l ·
``server_lr`` Kβ, η_g · ``max_staleness`` τ, I, of the stalest update that is used · ``max_gap`` Δ · ``available_every``
E · in Example 1 ``first_rounds`` t_1, ``second_rounds`` t_2, ``first_centre`` e_1, ``second_centre`` e_2.
"""

from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.theory.async_comm_sgd import (
    async_comm_bound,
    async_comm_convex_bound,
    async_comm_convex_step_size,
    async_comm_convex_weight,
    async_comm_convex_weight_sum,
    async_comm_distance_bound,
    async_comm_step_size,
)
from offbeat.theory.bound import Assumption, Bound
from offbeat.theory.fedbuff import fedbuff_bound, fedbuff_smallest_server_steps, fedbuff_step_size
from offbeat.theory.fedlaavg import (
    fedavg_example_limit,
    fedlaavg_bound,
    fedlaavg_example_bound,
    fedlaavg_max_staleness,
    fedlaavg_step_size,
)
from offbeat.theory.fedluck import (
    FedLuckConstants,
    fedluck_bound,
    fedluck_bound_as_printed,
    fedluck_objective,
    staleness_in_periods,
)

__all__ = [
    "Assumption",
    "Bound",
    "FedLuckConstants",
    "async_comm_bound",
    "async_comm_convex_bound",
    "async_comm_convex_step_size",
    "async_comm_convex_weight",
    "async_comm_convex_weight_sum",
    "async_comm_distance_bound",
    "async_comm_step_size",
    "best_steps_and_compression",
    "fedavg_example_limit",
    "fedbuff_bound",
    "fedbuff_smallest_server_steps",
    "fedbuff_step_size",
    "fedlaavg_bound",
    "fedlaavg_example_bound",
    "fedlaavg_max_staleness",
    "fedlaavg_step_size",
    "fedluck_bound",
    "fedluck_bound_as_printed",
    "fedluck_objective",
    "staleness_in_periods",
]
