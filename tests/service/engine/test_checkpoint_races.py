"""Changes that come while a checkpoint is made, and that need no lock of the engine."""

from offbeat.service.audit.verification import entries, verify
from tests.service.conftest import running


async def nothing() -> None:
    """Take the place of a checkpoint."""


def checkpoint_during(server, change):
    """Write a checkpoint, the last one; make a change after the coordinator's state was taken."""
    aggregate = server.service.engine.publisher.aggregate

    async def and_change(work):
        result = await aggregate(work)
        change()
        return result

    server.service.engine.publisher.aggregate = and_change
    server.checkpoint()
    server.service.engine.publisher.aggregate = aggregate
    server.checkpoints.write = nothing


def test_a_client_that_enrols_during_a_checkpoint_enrols_once(tmp_path):
    with running(tmp_path / "server") as server:
        accounts = server.service.accounts
        accounts.issued.make("enrolment", uses=3)
        token = accounts.issued.make("enrolment", uses=3)
        checkpoint_during(server, lambda: accounts.enrol(token, "site"))
    with running(tmp_path / "server") as server:
        assert [site.name for site in server.service.accounts.sites.values()] == ["site"]
        assert [one.uses for one in server.service.accounts.issued.infos() if one.uses is not None] == [3, 2]


def test_a_token_that_replaces_another_during_a_checkpoint_replaces_it_once(tmp_path):
    with running(tmp_path / "server") as server:
        server.enrol()
        accounts = server.service.accounts
        token, _ = accounts.rotate(0)
        checkpoint_during(server, lambda: accounts.check(token, "client"))
    with running(tmp_path / "server") as server:
        assert server.service.accounts.check(token, "client") == 0


def test_an_entry_of_the_audit_log_during_a_checkpoint_counts_once(tmp_path):
    with running(tmp_path / "server") as server:
        audit = server.service.accounts.audit
        audit.count("requests", "refused")
        checkpoint_during(server, audit.flush)
    with running(tmp_path / "server") as server:
        server.enrol()
        head = server.service.accounts.audit.head
    verify(tmp_path / "server", [head])
    assert [entry["number"] for entry in entries(tmp_path / "server")][-1] == head.number + 1  # the server's stop
