"""``python -m papers``: the papers' figures and bounds, measured again."""

import click

from offbeat.cli.main import main
from papers.cli import figures
from papers.theory.command import theory


class _FiguresByDefault(click.Group):
    """A group whose command ``figures`` needs no name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] == ["theory"] else ["figures", *args])


app = _FiguresByDefault(commands=[figures, theory], context_settings={"help_option_names": ["-h", "--help"]})

if __name__ == "__main__":
    main(app, "python -m papers")
