"""A client in JAX; it needs ``offbeat-client`` and jax.

python examples/clients/jax_client.py URL TOKEN-FILE FOLDER SHARD [CA]
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import offbeat_client
from jax import Array
from jax import numpy as jnp
from softmax import Model, readings


def loss(model: dict[str, Array], inputs: Array, labels: Array) -> Array:
    """Return the mean cross-entropy."""
    scores = jax.nn.log_softmax(inputs @ model["weight"].T + model["bias"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


def main(url: str, token_file: str, folder: str, shard: str, ca: str | None = None) -> None:
    """Take part in the run with one shard of the examples."""
    inputs, labels = map(jnp.asarray, readings(int(shard)))
    gradient = jax.jit(jax.grad(loss))

    def fit(model: Model, visit: Any) -> tuple[Model, int]:
        trained = {name: jnp.asarray(array) for name, array in model.items()}
        for _ in range(visit.plan.steps):
            change = gradient(trained, inputs, labels)
            trained = {name: array - visit.plan.lr * change[name] for name, array in trained.items()}
        return {name: np.asarray(array) for name, array in trained.items()}, len(labels)

    token = Path(token_file).read_text(encoding="ascii").strip()
    print(offbeat_client.run(url, fit, folder, enrolment_token=token, ca=ca), "updates counted")


if __name__ == "__main__":
    main(*sys.argv[1:])
