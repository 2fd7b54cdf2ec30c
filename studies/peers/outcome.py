"""Models of other programs beside Offbeat's, after the same arrivals.

``python studies/peers/outcome.py [--only NAME]``. APPFL and NVFlare run their FedAsync and FedBuff, each in its
environment (``outcome_of_NAME.py``), and record which client begins and which arrives; Offbeat's algorithm replays
that. A line of JSON has the distance of the last models, relative to the length of Offbeat's.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from outcome_workload import CONCURRENCY, MIXING, WORKLOAD, trained
from run import BUILD, HERE, installed
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, FedAsync, FedBuff, LocalPlan, Update
from offbeat.algorithms.components.weights import STALENESS

PEERS = ("appfl", "nvflare")


def replayed(algorithm: Algorithm, events: list[tuple[str, int]]) -> Tensor:
    """Return the model of an algorithm after these assignments and arrivals."""
    algorithm.start(nn.utils.parameters_to_vector(WORKLOAD.make().parameters()).detach(), WORKLOAD.clients)
    plan = LocalPlan(steps=WORKLOAD.steps, batch_size=WORKLOAD.batch_size, lr=WORKLOAD.lr)
    begun: dict[int, tuple[int, Tensor]] = {}
    for kind, client in events:
        if kind == "assign":
            algorithm.assign(client, plan)
            begun[client] = algorithm.version, algorithm.model.clone()
        else:
            version, start = begun.pop(client)
            end = trained(start, client)
            vector = end if algorithm.payload == "params" else start - end
            algorithm.receive(Update(client, version, vector, WORKLOAD.examples, plan.steps, plan.steps))
    return algorithm.model


def rows(peer: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each setting of a program."""
    with (BUILD / f"{peer}.log").open("a") as log:
        python = installed(peer, log)
        command = [python, HERE / f"outcome_of_{peer}.py"]
        # NVFlare chooses devices from sets of names.
        variables = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True, env=variables)
    version = subprocess.run(
        [python, "-c", f"from importlib.metadata import version; print(version({peer!r}))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    for line in done.stdout.splitlines():
        theirs = json.loads(line)
        staleness = STALENESS[theirs["staleness"]]()
        algorithm = (
            FedBuff(buffer_size=theirs["buffer_size"], staleness=staleness, concurrency=CONCURRENCY)
            if theirs["algorithm"] == "fedbuff"
            else FedAsync(mixing_alpha=MIXING, staleness=staleness, concurrency=CONCURRENCY)
        )
        model = replayed(algorithm, theirs["events"])
        distance = (torch.tensor(theirs["model"]) - model).norm() / model.norm()
        yield {
            "outcome": f"{peer} {version}",
            "algorithm": theirs["algorithm"],
            "settings": theirs["settings"],
            "distance": distance.item(),
            "lost": theirs.get("lost", 0.0),
        }


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description="Models of other programs beside Offbeat's.")
    parser.add_argument("--only", choices=PEERS, help="only this one")
    arguments = parser.parse_args()
    for peer in (arguments.only,) if arguments.only else PEERS:
        try:
            for row in rows(peer):
                print(json.dumps(row), flush=True)
        except (subprocess.CalledProcessError, OSError) as failure:
            print(f"{peer}: left out: {failure} ({BUILD / peer}.log)", file=sys.stderr)


if __name__ == "__main__":
    main()
