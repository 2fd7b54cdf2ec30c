"""A client in numpy; it needs ``offbeat-client`` only.

python examples/clients/numpy_client.py URL TOKEN-FILE FOLDER SHARD [CA]
"""

import logging
import sys
from pathlib import Path
from typing import Any

import offbeat_client
from softmax import Model, readings, train


def main(url: str, token_file: str, folder: str, shard: str, ca: str | None = None) -> None:
    """Take part in the run with one shard of the examples."""
    examples = len(readings(int(shard))[1])

    def fit(model: Model, visit: Any) -> tuple[Model, int]:
        return train(model, int(shard), visit.plan.steps, visit.plan.lr), examples

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    token = Path(token_file).read_text(encoding="ascii").strip()
    print(offbeat_client.run(url, fit, folder, enrolment_token=token, ca=ca), "updates counted")


if __name__ == "__main__":
    main(*sys.argv[1:])
