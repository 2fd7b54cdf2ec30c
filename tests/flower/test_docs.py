"""The page on Flower says what the code does."""

import doctest
import inspect
import re
import tomllib
from pathlib import Path

from flwr.serverapp import ServerApp
from offbeat_core.local_plan import LocalPlan

from offbeat.config.experiment_sections import FlowerSection
from offbeat.flower.records import plan_config
from offbeat.flower.server import run_on_grid
from tests.flower.apps import net
from tests.flower.link import Link
from tests.flower.test_server import at_work

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "flower.md").read_text("utf-8")


def test_the_page_names_the_plans_keys():
    row = next(line for line in PAGE.splitlines() if line.startswith("| the plan |"))
    named = set(re.findall(r"`([\w-]+)`", row.partition(":")[2]))
    assert named == set(plan_config(LocalPlan(steps=1, batch_size=1, lr=0.1, clip_norm=1.0), 0))


def test_the_pages_table_is_a_section():
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    FlowerSection.model_validate(tomllib.loads(block)["flower"], context={"folder": Path()})


def test_the_pages_call_is_that_of_run_on_grid():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    calls = []

    class App:
        def main(self):
            return lambda function: function

    def record(*arguments, **options):
        calls.append(inspect.signature(run_on_grid).bind(*arguments, **options))

    names = {"app": App(), "Net": object}
    exec(block, names)
    names["run_on_grid"] = record
    names["main"](None, None)
    assert calls[0].arguments["versions"] == 20


def test_the_example_of_the_reference_runs():
    text = (Path(__file__).parents[2] / "docs" / "api" / "flower.md").read_text("utf-8")
    (imports,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names = {"app": ServerApp(), "Net": net}
    exec(imports, names)
    found = names["run_on_grid"]
    states = []
    names["run_on_grid"] = lambda *given, **more: states.append(found(*given, look_seconds=0.001, **more))
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(found), names, "run_on_grid", None, None)
    assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
    link = Link(10)
    with at_work(link):
        example.globs["main"](link.grid, None)
    # Each of 20 versions subtracts at most lr = 0.05 from 1, and less by stale updates.
    assert all(0 <= weight < 0.9 for weight in states[0]["1.weight"].tolist())
