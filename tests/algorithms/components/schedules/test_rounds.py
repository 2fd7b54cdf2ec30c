import pytest

from offbeat.algorithms.components import Available, Rounds, RunFacts


def started(schedule, clients=6):
    run = RunFacts(1, clients)
    schedule.check_run(run)
    schedule.start(run)
    return schedule


def ask(schedule, *clients, version=0):
    for client in clients:
        schedule.assign(client, version)
    return schedule


def test_a_round_waits_for_the_first_m_updates():
    schedule = started(Rounds(2, 1.5))
    assert (schedule.number, schedule.slots()) == (0, 3)
    ask(schedule, 4, 1, 3)
    assert (schedule.slots(), schedule.at_work) == (0, 3)
    assert schedule.hear(3) is False
    assert schedule.hear(4) is True


@pytest.mark.parametrize(
    ("cohort", "over_selection", "clients", "places"),
    [(3, 1.0, 6, 3), (3, 1.3, 6, 4), (6, 2.0, 6, 6), (100, 1.1, 200, 110), (1000, 1.01, 1010, 1010), (1, 1000, 6, 6)],
)
def test_over_selection_assigns_more_clients(cohort, over_selection, clients, places):
    assert started(Rounds(cohort, over_selection), clients).slots() == places


def test_a_cohort_is_not_larger_than_the_population():
    with pytest.raises(ValueError, match="cohort must be at most the number of clients, 6, got 7"):
        started(Rounds(7))
    assert started(Rounds(6)).slots() == 6


def test_a_round_is_complete_when_all_its_clients_were_heard_or_lost():
    schedule = ask(started(Rounds(3)), 0, 1, 2)
    assert schedule.lose(0, 0) is False
    assert schedule.lose(0, 0) is False
    assert schedule.lose(1, 1) is False  # it works from another version
    assert schedule.hear(1) is False
    assert schedule.lose(2, 0) is True


def test_a_round_that_is_not_full_is_not_complete():
    schedule = ask(started(Rounds(3)), 0, 1)
    assert schedule.hear(0) is False
    assert schedule.lose(1, 0) is False
    assert schedule.slots() == 1
    ask(schedule, 2)
    assert schedule.hear(2) is True


def test_a_lost_client_is_not_replaced_but_heard_while_the_round_is_open():
    schedule = ask(started(Rounds(2)), 0, 1)
    schedule.lose(0, 0)
    assert schedule.slots() == 0
    assert schedule.wants(0, 0)
    assert schedule.hear(0) is False
    assert schedule.hear(1) is True


@pytest.mark.parametrize("make", [lambda: Rounds(3), Available])
def test_a_client_has_one_turn_a_round(make):
    schedule = ask(started(make()), 0)
    for _ in ("at work", "heard"):
        with pytest.raises(ValueError, match="client 0 cannot be assigned: it had its turn in this round"):
            schedule.assign(0, 0)
        if schedule.wants(0, 0):
            schedule.hear(0)
    schedule.close()
    schedule.open()
    ask(schedule, 0, version=1)
    assert schedule.wants(0, 1)
    assert schedule.number == 1


@pytest.mark.parametrize("make", [lambda: Rounds(2), Available])
def test_a_closed_round_wants_no_client(make):
    schedule = ask(started(make()), 0, 1)
    schedule.close()
    assert (schedule.slots(), schedule.number, schedule.at_work) == (0, 0, 0)
    assert not schedule.wants(0, 0)
    assert schedule.lose(1, 0) is False
    assert schedule.tick() is False
    with pytest.raises(ValueError, match="client 5 cannot be assigned"):
        schedule.assign(5, 0)


@pytest.mark.parametrize("make", [lambda: Rounds(2), Available])
def test_a_deadline_ends_a_round_that_has_begun(make):
    schedule = started(make())
    assert schedule.tick() is False
    ask(schedule, 3)
    assert schedule.tick() is True


def test_available_takes_clients_in_until_the_first_is_back():
    schedule = started(Available())
    assert schedule.slots() == 6
    ask(schedule, 5, 0, 2)
    assert schedule.slots() == 3
    schedule.lose(5, 0)
    assert schedule.slots() == 3
    assert schedule.hear(0) is False
    assert schedule.slots() == 0
    with pytest.raises(ValueError, match="client 1 cannot be assigned: it had its turn in this round, or none"):
        schedule.assign(1, 0)


def test_available_ends_when_all_members_are_back_or_lost():
    schedule = ask(started(Available()), 5, 0, 2)
    assert schedule.hear(0) is False
    assert schedule.lose(5, 0) is False
    assert schedule.hear(2) is True


def test_available_hears_a_lost_member_and_ends_with_a_loss():
    schedule = ask(started(Available()), 1, 2, 3)
    schedule.lose(1, 0)
    assert schedule.hear(1) is False
    assert schedule.hear(2) is False
    assert schedule.lose(3, 0) is True
