"""FedFa: asynchronous clients, and a window of the last K updates.

Every update makes a server step from the window.
"""

from typing import Literal

from torch import Tensor

from offbeat.algorithms.components import (
    DOES_NOT_COUNT,
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    LocalPlan,
    Positive,
    ServerOptimizer,
    ServerStep,
    Update,
    Weight,
    Window,
    check_not_negative,
)


class FedFa(Algorithm):
    """Fully asynchronous: each update makes a new model from the last K updates.

    A window holds the last K uploads; a new one replaces the oldest. Until K have arrived the model stays w_0. The
    K-th makes the first version, and every r-th after it, r = ``release_every``, the next:

    - delta: ``w_{t+1} = w_t − (server_lr / K) · Σ Δ_j`` over the window;
    - params: ``w_{t+1} = (1 / K) · Σ w_j`` over the window.

    The formulas follow the text of section 3.1 (the model is the mean of all parameters in the buffer, once K have
    arrived); equations (3) and (4), both algorithms and the global learning rate were not available to us.
    ``server_lr = 1`` is our assumption, not the paper's value.

    With r = 1 each delta counts in K successive versions. For equal directions an upload moves the model in all

    - with delta by ``server_lr · ‖Δ‖``; in FedBuff by ``server_lr / K`` times ‖Δ‖;
    - with params by ``1 / (M + (K − 1)/2)`` times ‖Δ‖, M clients at work; in FedAsync by ``α / (1 + α τ̄)`` times ‖Δ‖.

    Compare algorithms at equal displacement by an upload, or tune each, and count uploads, not versions. r = K is
    FedBuff without staleness weights (s = 1), and K = 1 plain asynchronous SGD.

    With ``normalise`` clients count as in FedNova: each delta is divided by its a_j and the sum multiplied by the
    window's mean a_j (Table 6; the paper found the pair unstable). A client that was cut short before its first
    step, a_j = 0, has no direction: its slot is free again, and it does not enter the window.

    Privacy: two consecutive sums differ by one new delta and one old one, so an observer of every version learns
    ``Δ_in − Δ_out``. A sum over K clients hides less here than in FedBuff.

    Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning" (IJCAI 2024), section 3.1.

    Args:
        window: K ≥ 1.
        transmit: ``delta`` or ``params``, what clients upload.
        server_lr: Step size on the averaged delta, > 0; 1 for params, which take no step.
        release_every: r, 1 ≤ r ≤ K; with r > K an update could leave the window before it counts in a version.
        concurrency: Clients at work at the same time, ≥ 1.
        normalise: Divide each delta by its a_j; for deltas only.
        server_optimizer: Takes the step instead of plain subtraction; None for plain. For deltas only.

    Raises:
        ValueError: A hyper-parameter is out of range, or does not go with params.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedFa(window=5, server_lr=0.2), **world)
        >>> int(history.version.iloc[-1])  # each, from the fifth on
        16
    """

    name = "fedfa"
    grows = True

    window: Count = 5
    transmit: Literal["delta", "params"] = "delta"
    server_lr: Positive = 1.0
    release_every: Count = 1
    concurrency: Count = 10
    normalise: bool = False
    server_optimizer: ServerOptimizer | None = None

    def check_values(self) -> None:
        if self.release_every > self.window:
            raise ValueError(f"release_every must be at most the window, {self.window}, got {self.release_every}")
        if self.transmit == "params" and (self.server_lr != 1 or self.normalise or self.server_optimizer is not None):
            raise ValueError("server_lr, normalise and server_optimizer are for transmit = 'delta': leave them out")

    def compose(self) -> None:
        self.payload = self.transmit
        self.schedule = Continuous(self.concurrency)
        self.buffer = Window(self.window, self.release_every, "a")
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def check_local(self, local: LocalPlan) -> None:
        if self.normalise and local.optimizer != "sgd":
            raise ValueError("the a_j of normalise are weights of SGD's gradients: leave normalise or optimizer out")

    def weigh(self, update: Update) -> Weight:
        a = float(update.normaliser) if self.normalise else 1.0
        if a == 0:
            return DOES_NOT_COUNT
        check_not_negative("1 / normaliser", 1 / a)
        return Weight(1 / a, a=a)

    def is_ready(self) -> bool:
        return self.buffer.count == (self.release_every if self.version else self.window)

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        mean_a = closed.tallies["a"] / self.window
        mean = closed.mean(self.window / mean_a)
        return mean if self.transmit == "params" else self.step(model, mean)
