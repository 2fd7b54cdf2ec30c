"""A client in scikit-learn; it needs ``offbeat-client`` and scikit-learn.

python examples/clients/sklearn_client.py URL TOKEN-FILE FOLDER SHARD [CA]

Its classifier goes through the examples one by one, so it ends near the models of the other clients here, not at them.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import offbeat_client
from sklearn.linear_model import SGDClassifier
from softmax import Model, readings


def main(url: str, token_file: str, folder: str, shard: str, ca: str | None = None) -> None:
    """Take part in the run with one shard of the examples."""
    inputs, labels = readings(int(shard))

    def fit(model: Model, visit: Any) -> tuple[Model, int]:
        # Of two labels scikit-learn keeps one row, the difference: its steps are twice as long as those of each row.
        step = 2 * visit.plan.lr / len(labels)
        classifier = SGDClassifier(
            loss="log_loss", penalty=None, learning_rate="constant", eta0=step, max_iter=visit.plan.steps, tol=None
        )
        (start,), (offset,) = (np.diff(model[name], axis=0) for name in ("weight", "bias"))
        # It trains in the arrays that it is given.
        classifier.fit(inputs, labels, coef_init=start[None].copy(), intercept_init=offset[None].copy())
        moved = {"weight": classifier.coef_[0] - start, "bias": classifier.intercept_[0] - offset}
        return {name: array + np.stack([-moved[name] / 2, moved[name] / 2]) for name, array in model.items()}, len(
            labels
        )

    token = Path(token_file).read_text(encoding="ascii").strip()
    print(offbeat_client.run(url, fit, folder, enrolment_token=token, ca=ca), "updates counted")


if __name__ == "__main__":
    main(*sys.argv[1:])
