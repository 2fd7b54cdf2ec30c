"""The training of ``curl_client.sh``.

Any program that reads and writes these files can take its place.

``python curl_train.py FOLDER SHARD`` reads the visit from ``checkin.json`` and the model from ``model.safetensors``. It
writes the update to ``update.safetensors``, and the header ``Offbeat-Update`` to ``update.header``.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save
from softmax import readings, train


def main(folder: Path, shard: int) -> None:
    """Train by the visit's plan and write the update."""
    visit = json.loads((folder / "checkin.json").read_bytes())["visit"]
    plan = visit["plan"]
    model = folder / "model.safetensors"
    if hashlib.sha256(model.read_bytes()).hexdigest() != visit["model_sha256"]:
        sys.exit("this is not the visit's model: start again")
    with safe_open(model, framework="numpy") as file:
        names = [name for name, _ in json.loads(file.metadata()["layout"])]
        start = {name: file.get_tensor(name) for name in names}
    end = train(start, shard, plan["steps"], plan["lr"])
    if visit["payload"] == "difference" or plan["compression"] or visit["privacy"]:
        sys.exit("this client has no memory, compression or masks")
    parts = [end[name] if visit["payload"] == "params" else start[name] - end[name] for name in names]
    body = save({"update": np.concatenate([part.ravel() for part in parts])})
    header = {
        "version": visit["version"],
        "model_sha256": visit["model_sha256"],
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "examples": len(readings(shard)[1]),
        "steps": plan["steps"],
        "normaliser": float(plan["steps"]),
        "since": visit["since"],
    }
    (folder / "update.safetensors").write_bytes(body)
    (folder / "update.header").write_text(f"Offbeat-Update: {json.dumps(header)}\n", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
