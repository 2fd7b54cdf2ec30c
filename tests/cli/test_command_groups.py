"""Commands that other packages add."""

import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from click.testing import CliRunner
from offbeat_core.errors import OffbeatError

from offbeat.cli import command_groups
from offbeat.cli.command_groups import ENTRY_POINTS, OpenGroup
from offbeat.cli.experiment_parts import algorithms
from offbeat.cli.main import app


class TestOpenGroup:
    @pytest.fixture
    def install(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Return a function that installs commands by name, in place of those of this environment."""

        def put(**values: str) -> None:
            entries = EntryPoints(EntryPoint(name, value, ENTRY_POINTS) for name, value in values.items())
            monkeypatch.setattr(command_groups, "entry_points", entries.select)

        return put

    @staticmethod
    def call(*arguments: str) -> tuple[int, str]:
        """Return the exit code, and the error or the output."""
        group = OpenGroup(context_settings=app.context_settings)
        group.add_section("Built in", [algorithms])
        outcome = CliRunner().invoke(group, arguments)
        error = outcome.exception
        return outcome.exit_code, str(error) if isinstance(error, OffbeatError) else outcome.output

    def test_one_is_listed_and_called(self, install: Callable[..., None]) -> None:
        install(greet="tests.cli.greeting:greet")
        assert re.search(r"\nAdded by tests\.cli\.greeting:\n  greet +Greet NAME\.\n", self.call("--help")[1])
        assert self.call("greet", "Ada") == (0, "Hello Ada\n")

    def test_a_built_in_one_wins(self, install: Callable[..., None]) -> None:
        install(algorithms="tests.cli.greeting:greet")
        assert "Greet" not in self.call("algorithms", "--help")[1]

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("tests.cli.gone:greet", "ModuleNotFoundError: No module named 'tests.cli.gone'"),
            ("tests.cli.greeting:NAME", "tests.cli.greeting:NAME is not a command of click"),
        ],
    )
    def test_a_broken_one_is_a_line_and_leaves_the_others(
        self, value: str, problem: str, install: Callable[..., None]
    ) -> None:
        install(broken=value)
        module = value.partition(":")[0]
        line = f"broken of {module} cannot be loaded ({problem}): upgrade or remove {module}"
        assert self.call("broken", "x", "--y") == (1, line)
        code, out = self.call("--help")
        assert code == 0
        assert "  algorithms " in out

    @pytest.mark.parametrize("name", ["benchmark", "papers", "theory"])
    def test_without_the_studies_a_line_says_what_to_install(self, name: str, install: Callable[..., None]) -> None:
        install()
        for arguments in (("--help",), ("bound", "file.toml", "--rounds", "3")):
            line = f"{name} is a command of offbeat-studies: pip install offbeat-studies"
            assert self.call(name, *arguments) == (1, line)
        assert name not in self.call("--help")[1]

    def test_serve_names_the_command_that_starts_a_server(self, install: Callable[..., None]) -> None:
        install()
        line = "serve is a command of the group server: offbeat server start FILE"
        assert self.call("serve", "server.toml", "--log") == (1, line)
        assert "  serve " not in self.call("--help")[1]
