"""What the docs show runs as shown."""

import re
from pathlib import Path

import pytest

from offbeat.experiments import config

ROOT = Path(__file__).parents[2]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_coordinator_can_be_driven_as_the_docs_say():
    (example,) = blocks("docs/how-it-works.md", "python")
    names = {}
    exec(example, names)
    assert names["coordinator"].statistics.counted == 3


def test_the_docs_toml_is_valid(tmp_path):
    (example,) = blocks("docs/experiments.md", "toml")
    quickstart = (ROOT / "experiments/quickstart.toml").read_text(encoding="utf-8")
    path = tmp_path / "x.toml"
    path.write_text(quickstart.replace("[algorithms.fedbuff]", example + "\n[algorithms.other]\nalgorithm = 'fedbuff'"))
    experiment = config.load(path)
    assert experiment.plan("fedprox").mu == 0.1
    assert experiment.algorithm("fedbuff").server_optimizer.name == "adam"


@pytest.mark.parametrize("section", ["data", "model", "local", "population", "server", "stop", "evaluate"])
def test_the_docs_name_every_key(section):
    text = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    annotation = config.Experiment.model_fields[section].annotation
    kinds = getattr(annotation, "__args__", (annotation,))
    for key in {key for kind in kinds for key in kind.model_fields}:
        assert f"`{section}.{key}`" in text or f"`.{key}`" in text or f"`{key} = " in text, key
