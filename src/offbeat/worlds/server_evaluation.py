"""A program that measures models on the server's test set: a path a line in, a line of JSON out.

``python -m offbeat.worlds.server_evaluation`` gets the sections that it needs as JSON, as its argument.
"""

import json
import os
import sys

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file

from offbeat.config.experiment_sections import DataSection, ModelSection
from offbeat.training.evaluation import Evaluator
from offbeat.worlds.simulation import build_dataset, build_model, objective_of


def main() -> None:
    """Measure until standard input ends."""
    sections = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the user's own code prints is no answer
    torch.set_num_threads(1)
    os.nice(10)
    data = DataSection.model_validate(sections["data"])
    section = TypeAdapter[ModelSection](ModelSection).validate_python(sections["model"])
    dataset = build_dataset(data)
    model = build_model(section, dataset, sections["seed"])
    objective = objective_of(section.loss, sections["metrics"])
    evaluate = Evaluator(
        model,
        loss=objective.loss,
        metrics=objective.metrics,
        seed=sections["seed"],
        inputs=torch.from_numpy(dataset.test_inputs),
        labels=torch.from_numpy(dataset.test_labels),
    )
    for line in sys.stdin:
        tensors = load_file(line.strip())
        names = model.named(model.vector)
        loss, metrics = evaluate(torch.cat([tensors[name].view(-1) for name in names]))
        print(json.dumps({"loss": loss, **metrics}), file=answers, flush=True)


if __name__ == "__main__":
    main()
