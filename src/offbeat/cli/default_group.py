"""A group of commands of which one needs no name."""

import click
from click.shell_completion import CompletionItem


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
