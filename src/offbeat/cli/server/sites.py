"""Commands ``sites``: the sites of a server of several runs."""

from collections.abc import Sequence

import click

from offbeat.cli.command_groups import DefaultGroup
from offbeat.cli.server.clients import show_forgotten
from offbeat.cli.server.server_place import SERVER, ServerPlace
from offbeat.cli.terminal import visible

_SITE = click.argument("which", metavar="SITE")


@click.group(cls=DefaultGroup, epilog="\b\nExample:\n  offbeat server sites runs/server")
def sites() -> None:
    """List, label, rename, revoke and forget a server's sites.

    On a server of several runs a site enrols once, and takes part in each run that admits it. SITE is a site's name, or
    its number, as 3 or site-3.
    """


@sites.command("list", epilog="\b\nExample:\n  offbeat server sites list runs/server")
@SERVER
def show(server: ServerPlace) -> None:
    """List all sites, with their labels and runs."""
    from offbeat.service.server import host_admin

    for site in host_admin.sites(server.folder):
        labels, runs = (" ".join(site[key]) or "none" for key in ("labels", "runs"))
        revoked = "" if site["revoked"] is None else ", revoked"
        click.echo(f"site-{site['site']}: {visible(site['name'])}{revoked}; labels: {labels}; runs: {runs}")


@sites.command(epilog="\b\nExample:\n  offbeat server sites label runs/server 'ward 3' gpu eu")
@SERVER
@_SITE
@click.argument("labels", metavar="[LABEL]...", nargs=-1)
def label(server: ServerPlace, which: str, labels: Sequence[str]) -> None:
    """Give SITE these labels in place of those that it has.

    Runs admit it by them from now on. It stays in the runs that it takes part in.
    """
    from offbeat.service.server import host_admin

    number = host_admin.label_site(server.folder, which, list(labels))
    click.echo(f"site-{number}: {' '.join(labels) or 'no labels'}")


@sites.command(epilog="\b\nExample:\n  offbeat server sites rename runs/server site-3 'ward 3'")
@SERVER
@_SITE
@click.argument("name", metavar="NAME")
def rename(server: ServerPlace, which: str, name: str) -> None:
    """Give SITE another NAME."""
    from offbeat.service.server import host_admin

    click.echo(f"site-{host_admin.rename_site(server.folder, which, name)}: renamed")


@sites.command(epilog="\b\nExample:\n  offbeat server sites revoke runs/server 'ward 3'")
@SERVER
@_SITE
def revoke(server: ServerPlace, which: str) -> None:
    """Revoke SITE in all runs.

    Its requests are refused, and its visits are lost.
    """
    from offbeat.service.server import host_admin

    click.echo(f"site-{host_admin.revoke_site(server.folder, which)}: revoked")


@sites.command(epilog="\b\nExample:\n  offbeat server sites forget runs/server 'ward 3'")
@SERVER
@_SITE
def forget(server: ServerPlace, which: str) -> None:
    """Revoke SITE, and delete what the server holds of it.

    So do all runs. That cannot be undone. Prints what was deleted, and what cannot be.
    """
    from offbeat.service.server import host_admin

    forgotten = host_admin.forget_site(server.folder, which)
    show_forgotten(f"site-{forgotten['client']}", forgotten)
