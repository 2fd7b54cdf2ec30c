"""The page on Flower says what the code does."""

import inspect
import re
import tomllib
from pathlib import Path

from offbeat_core.local_plan import LocalPlan

from offbeat.config.experiment_sections import FlowerSection
from offbeat.flower.records import plan_config
from offbeat.flower.server import run_on_grid

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
