"""Groups of commands: with sections in the help, or with a default command."""

from collections.abc import Mapping, Sequence

import click
from click.shell_completion import CompletionItem


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
        widest = max(map(len, self.commands))
        for title, names in self._sections.items():
            with formatter.section(title):
                limit = formatter.width - 6 - widest
                formatter.write_dl(
                    [(name.ljust(widest), self.commands[name].get_short_help_str(limit)) for name in names]
                )


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
