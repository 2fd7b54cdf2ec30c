"""Sums of clipped updates with noise, by a server that sees each update."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, Sum
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.running_sum import RunningSum, values
from offbeat.algorithms.components.buffers.wrappers import Wrap
from offbeat.algorithms.components.client_update import Promise, Update
from offbeat.algorithms.components.component import RunFacts

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm


class WholeNoise(Protocol):
    """Whole noise of sums, as ``NoiseSource`` makes it.

    Attributes:
        rows: How many sums the noise of one depends on, itself included.
    """

    rows: int

    def noise(self, number: int, digests: Sequence[bytes]) -> Any:
        """Return a sum's noise, an int64 array ``(d,)``.

        Each digest is that of a sum and of all sums before it; the last one is that of the sum with this number.
        """
        ...


WholeUpdate = Callable[[Update, float, float], Promise]
"""Maps an update, its divisor and its scale to the promise of its whole numbers, int32 ``(d,)``."""


class NoisySum(Sum):
    """A sum of updates as whole numbers, with whole noise on each release.

    An update is divided by its algorithm's ``divisor``, clipped to C, scaled by a weight of at most 1 and rounded at
    random to whole numbers of steps, whose norm is at most C and √d steps. So one client changes the sum by no more,
    the sensitivity that the noise is made for. Noise is added to the whole sum, which becomes floats once, at the end:
    noise in floats on sums in floats would leak through the gaps between floats. The weights of most algorithms are
    below 1 for late updates; the noise is not scaled down with them. An update that is not finite counts as zeros: a
    refusal would reveal that its client's training diverged.

    The noise of a release is bound to a digest of its sum and of all sums before it. The last of them are part of the
    state.

    Args:
        algorithm: Whose buffer it stands for, a ``Sum``.
        step: The value of the whole number 1.
        whole: Makes an update whole numbers.
        noise: The noise; None for no noise.
        least: The fewest updates in a sum.
    """

    def __init__(
        self,
        algorithm: "Algorithm[Any]",
        *,
        step: float,
        whole: WholeUpdate,
        noise: WholeNoise | None,
        least: int,
    ) -> None:
        assert isinstance(algorithm.buffer, Sum)
        super().__init__(*algorithm.buffer.tallies)
        self.step = step
        self.least = least
        self._algorithm = algorithm
        self._whole = whole
        self._noise = noise

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._digests: dict[int, bytes] = {}  # by number: of a sum and all before it

    def _empty_sum(self) -> RunningSum:
        return RunningSum(self._run, torch.int64, vectors=torch.int32)

    def _add_vector(self, update: Update, factor: float) -> None:
        """Add the update's whole numbers; a ``ValueError`` if it would weigh more than 1."""
        assert update.plan is not None
        divisor = self._algorithm.divisor(update.plan)
        scale = factor * divisor
        if not 0 <= scale <= 1:
            raise ValueError(
                f"this update would count {scale:.6g} times, but the noise covers a weight of at most 1: lower the "
                "algorithm's weights"
            )
        numbers = self._whole(update, divisor, scale)
        self._sum.add(numbers.resolve() if isinstance(update.vector, Tensor) else numbers, 1)

    def _total(self, version: int) -> Callable[[], Tensor]:
        numbers = self._sum
        return lambda: values(self._with_noise(version + 1, numbers.total()), self.step)

    def _with_noise(self, number: int, total: Tensor) -> Tensor:
        """Return the sum with this number and its noise, int64 ``(d,)``."""
        if self._noise is None:
            return total
        chain = {n: digest for n, digest in self._digests.items() if number - self._noise.rows <= n < number}
        sum_digest = hashlib.sha256(total.cpu().numpy().astype("<i8", copy=False).data).digest()
        chain[number] = hashlib.sha256(chain.get(number - 1, b"") + sum_digest).digest()
        noise = self._noise.noise(number, [chain[n] for n in sorted(chain)])
        self._digests = chain
        return total + torch.from_numpy(noise).to(total.device)

    def state_dict(self) -> dict[str, Any]:
        digests = {
            "digest_numbers": list(self._digests),
            "digests": [digest.hex() for digest in self._digests.values()],
        }
        return super().state_dict() | digests

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        digests = map(bytes.fromhex, state["digests"])
        self._digests = dict(zip(state["digest_numbers"], digests, strict=True))


def noisy(*, step: float, whole: WholeUpdate, noise: WholeNoise | None, least: int) -> Wrap:
    """Return a function that replaces a buffer of deltas by a ``NoisySum``.

    The arguments are those of ``NoisySum``.
    """

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        check_private_sum(algorithm, is_masked=False, is_noisy=noise is not None)
        return NoisySum(algorithm, step=step, whole=whole, noise=noise, least=least)

    return wrap
