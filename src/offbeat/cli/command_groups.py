"""Command groups: in sections, open to other packages, with a default command."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

import click
from click.shell_completion import CompletionItem
from offbeat_core.errors import OffbeatError

ENTRY_POINTS = "offbeat.commands"
_ELSEWHERE = {
    "serve": "is a command of the group server: offbeat server start FILE",
    **dict.fromkeys(("benchmark", "papers", "theory"), "is a command of offbeat-studies: pip install offbeat-studies"),
}


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section, in the order of adding."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # pyright: ignore[reportArgumentType]
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, commands: Mapping[str, click.Command] | Sequence[click.Command]) -> None:
        """Add commands under a title."""
        named = commands if isinstance(commands, Mapping) else {str(command.name): command for command in commands}
        self._sections.setdefault(title, []).extend(named)
        for name, command in named.items():
            self.add_command(command, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a table of commands for each section."""
        for title, names in self._sections.items():
            self._write(title, {name: self.commands[name] for name in names}, formatter)

    def _write(self, title: str, commands: Mapping[str, click.Command], formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.commands))
        limit = formatter.width - 6 - widest
        with formatter.section(title):
            rows = [(name.ljust(widest), command.get_short_help_str(limit)) for name, command in commands.items()]
            formatter.write_dl(rows)


class OpenGroup(SectionedGroup):
    """A group with sections, to which other packages add commands by entry points.

    A command of another package is imported when it is called, and for help. A built-in one of its name wins.
    """

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in self.commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *self._added]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one that only refuses if its package is missing or broken."""
        if (built_in := super().get_command(ctx, cmd_name)) is not None:
            return built_in
        if (entry := self._added.get(cmd_name)) is not None:
            return _loaded(entry)
        if cmd_name in _ELSEWHERE:
            return _refusing(cmd_name, f"{cmd_name} {_ELSEWHERE[cmd_name]}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a table of commands for each section and package."""
        super().format_commands(ctx, formatter)
        packages: dict[str, dict[str, click.Command]] = {}
        for name, entry in sorted(self._added.items()):
            packages.setdefault(_package(entry), {})[name] = _loaded(entry)
        for package, commands in packages.items():
            self._write(f"Added by {package}", commands, formatter)


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def _loaded(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except Exception as error:  # another package may raise anything
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(command, click.Command):
            return command
        problem = f"{entry.value} is not a command of click"
    advice = f"upgrade or remove {_package(entry)}"
    return _refusing(entry.name, f"{entry.name} of {_package(entry)} cannot be loaded ({problem}): {advice}")


def _refusing(name: str, line: str) -> click.Command:
    """Return a command that takes any arguments and raises an error."""

    def refuse() -> None:
        raise OffbeatError(line)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, anything, refuse, short_help=line, add_help_option=False)


class DefaultGroup(click.Group):
    """A group whose command ``list`` runs if the first word does not name a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``list`` before arguments that are meant for it."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, and files."""
        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]
