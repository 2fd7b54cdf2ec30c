"""The papers' convergence bounds as functions, their assumptions as data.

Each paper has a file. A bound is a ``Bound``: a value and its assumptions. ``bound.broken`` lists the assumptions that
a setting does not meet, for instance "T = 1000 is below 160 L (Q + 7)(τ + 1)³ = 1280". Each function raises a
``ValueError`` for a constant out of range. ``offbeat theory measure`` measures all bounds.

The arguments, and the papers' symbols for them:

======================  ===============  =====================================================
argument                symbol           meaning
======================  ===============  =====================================================
``smoothness``          L                the gradients' Lipschitz constant
``strong_convexity``    λ
``initial_error``       f(x_0) − f*      loss of the initial model above the lowest one
``variance``            σ²               of a gradient
``gradient_bound``      G                largest norm of a gradient
``round_number``        t
``rounds``              T or R           rounds of the whole run
``server_steps``        T                server steps of the whole run
``steps``               Q, C or k        local steps of one visit
``clients``             N or n
``cohort``              K                clients of one round
``lr``                  γ, η or η_l      the clients' step size
``server_lr``           Kβ or η_g        the server's step size
``max_staleness``       τ or I           of the stalest update that is used
``max_gap``             Δ                most rounds between a client's uploads
``available_every``     E                each client is available once in so many rounds
``first_rounds``        t_1              Example 1: rounds in which client 1 is available
``second_rounds``       t_2              Example 1: rounds in which client 2 is available
``first_centre``        e_1              Example 1: the minimum of client 1's loss
``second_centre``       e_2              Example 1: the minimum of client 2's loss
======================  ===============  =====================================================
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
