"""A client without PyTorch: softmax regression in numpy, on the arrays ``inputs`` and ``labels`` of an .npz file.

    python join_site.py https://host:8443 --token-file enrolment-token --ca ca.pem --folder client --data readings.npz

Replace ``fit`` by your own training; the model's arrays keep their names and shapes.
"""

import argparse
import logging
import sys
from pathlib import Path

import numpy as np
from offbeat_client import OffbeatError, Visit, run_client


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description="Take part in the run of the server at URL until it ends.")
    made.add_argument("url")
    made.add_argument("--token-file", type=Path, help="the enrolment token, for the first time")
    made.add_argument("--ca", type=Path, help="certificates to trust; those of the system by default")
    made.add_argument("--folder", type=Path, default=Path("client"), help="the client's folder")
    made.add_argument("--data", type=Path, required=True, help="an .npz file with inputs and labels")
    made.add_argument("--name", help="the client's name in lists and logs")
    return made


def make_fit(inputs: np.ndarray, labels: np.ndarray):
    """Return the training on these examples."""
    inputs = inputs.reshape(len(inputs), -1)

    def fit(model: dict[str, np.ndarray], visit: Visit) -> tuple[dict[str, np.ndarray], int]:
        weight, bias = (model[name].copy() for name in sorted(model, key=lambda name: -model[name].ndim))
        random = np.random.default_rng([visit.seed, visit.client, visit.number])
        for _ in range(visit.plan.steps):
            batch = random.integers(len(labels), size=visit.plan.batch_size)
            scores = inputs[batch] @ weight.T + bias
            error = np.exp(scores - scores.max(axis=1, keepdims=True))
            error /= error.sum(axis=1, keepdims=True)
            error[np.arange(len(batch)), labels[batch]] -= 1
            weight -= visit.plan.lr * error.T @ inputs[batch] / len(batch)
            bias -= visit.plan.lr * error.mean(axis=0)
        return {name: weight if model[name].ndim == 2 else bias for name in model}, len(labels)

    return fit


def main() -> None:
    """Join the server."""
    options = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    token = options.token_file.read_text(encoding="ascii").strip() if options.token_file else None
    examples = np.load(options.data, allow_pickle=False)
    fit = make_fit(examples["inputs"], examples["labels"])
    try:
        counted = run_client(
            options.url, lambda _: fit, options.folder, enrolment_token=token, ca=options.ca, name=options.name
        )
    except OffbeatError as error:
        sys.exit(f"site: {error}")
    print(f"The run is over: {counted} updates counted")


if __name__ == "__main__":
    main()
