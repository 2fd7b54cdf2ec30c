"""Program that measures a server's models: a path a line in, JSON a line out.

``python -m offbeat.worlds.server_evaluation SECTIONS`` gets the configuration as JSON.
"""

import json
import os
import sys
from contextlib import suppress

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file

from offbeat.config.experiment_sections import DataSection
from offbeat.config.model_sections import ModelSection
from offbeat.training.workload import Workload
from offbeat.worlds.workload import as_examples, build_dataset, build_model, build_objective


def main() -> None:
    """Measure models until standard input ends."""
    sections = json.loads(sys.argv[1])
    answers = os.dup(1)
    os.dup2(2, 1)  # user code may print; standard output is for the answers
    torch.set_num_threads(1)
    os.nice(10)
    section = TypeAdapter[ModelSection](ModelSection).validate_python(sections["model"])
    dataset = build_dataset(DataSection.model_validate(sections["data"]))
    model = build_model(section, dataset, sections["seed"])
    train, test = as_examples(dataset)
    objective = build_objective(section.loss, sections["metrics"])
    evaluate = Workload(model, objective, train, shards=(), seed=sections["seed"], test=test).evaluator()
    names = list(model.named(model.vector))
    for line in sys.stdin:
        tensors = load_file(line.strip())
        loss, metrics = evaluate(torch.cat([tensors[name].view(-1) for name in names]))
        with suppress(BrokenPipeError):  # the server was killed
            os.write(answers, f"{json.dumps({'loss': loss, **metrics})}\n".encode())


if __name__ == "__main__":
    main()
