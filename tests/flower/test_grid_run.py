"""A run over Flower's own link in memory, whose nodes and clock the test moves."""

import math
import time

import pytest
from flwr.app import ArrayRecord, Message
from flwr.clientapp import ClientApp
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms import MIFA, AsyncCommSGD, FedAsync, FedBuff, FedLaAvg, LocalPlan, Port
from offbeat.algorithms.components.schedules.patterns import round_robin
from offbeat.coordinator import Coordinator
from offbeat.flower.grid_run import GridRun
from offbeat.flower.model_arrays import ModelArrays
from tests.flower.apps import Subtract, app_of, minus_lr, net, reply
from tests.flower.link import Link

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.25)
APP = app_of(minus_lr)


class Timed:
    """A run with a clock of its own."""

    def __init__(self, link, algorithm, model=None, clients=3, lease_seconds=math.inf, client_fn=False, plan=PLAN):
        self.seconds = 0.0
        self.link = link
        self.arrays = ModelArrays(model or nn.Linear(1, 1, bias=False))
        if model is None:
            self.arrays.vector.fill_(1.0)
        self.coordinator = Coordinator(
            algorithm, self.arrays.vector, clients=clients, local=plan, lease_seconds=lease_seconds
        )
        self.run = GridRun(link.grid, self.coordinator, self.arrays, client_fn, clock=lambda: self.seconds)

    def step(self, seconds=0.0):
        self.seconds += seconds
        return self.run.step()

    @property
    def model(self):
        return self.coordinator.algorithm.model.tolist()

    @property
    def visits(self):
        numbers = self.coordinator.statistics
        return numbers.assigned, numbers.counted, numbers.lost


@pytest.fixture
def link():
    return Link(3)


def test_fast_nodes_make_versions_while_a_slow_one_works(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3, server_lr=0.5))
    assert timed.step() is False
    for version in range(1, 4):
        assert link.answer(0, APP)
        assert timed.step() is True
        assert timed.coordinator.algorithm.version == version
    assert timed.model == [1 - 3 * 0.5 * 0.25]
    link.answer(1, APP)
    timed.step()
    # Three versions late, it counts 1/√(1 + 3), from where it began.
    assert timed.model == [1 - 3 * 0.5 * 0.25 - 0.5 * 0.25 / 2]
    assert timed.visits == (7, 4, 0)


def test_a_message_has_the_model_the_plan_and_the_lease(link):
    timed = Timed(link, FedAsync(concurrency=1), net(), lease_seconds=90.0)
    timed.step()
    (message,) = [message for number in range(3) for message in link.messages(number)]
    assert list(message.content["arrays"]) == list(net().state_dict())
    assert (message.metadata.message_type, message.metadata.group_id, message.metadata.ttl) == ("train", "0", 90.0)
    assert message.content["config"]["lr"] == 0.25


def test_nodes_are_clients_in_the_order_of_their_registration(link):
    timed = Timed(link, FedBuff(buffer_size=3, concurrency=3))
    timed.step()
    for number, node in enumerate(link.nodes):
        assert timed.run._nodes.available[number] == node


def test_a_numpy_client_is_asked_in_its_way(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=1), client_fn=True)
    timed.step()
    app = ClientApp(lambda context: Subtract().to_client())
    assert sum(link.answer(number, app) for number in range(3)) == 1
    timed.step()
    assert timed.model == [0.75]


def broken(message, context):
    return reply(message, ArrayRecord({"other": message.content["arrays"]["weight"]}))


def infinite(message, context):
    state = message.content["arrays"].to_torch_state_dict()
    return reply(message, ArrayRecord({name: array / 0 for name, array in state.items()}))


@pytest.mark.parametrize("app", [app_of(broken), app_of(infinite)])
def test_a_reply_that_is_no_update_is_a_give_up(link, app, caplog):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=1))
    timed.step()
    assert sum(link.answer(number, app) for number in range(3)) == 1
    timed.step()
    assert timed.visits == (2, 0, 1)  # there is new work at once
    assert "its update is dropped" in caplog.text


def test_an_app_that_raises_costs_its_visit(link, caplog):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3))
    timed.step()
    link.fail(1, 2)
    timed.step()
    assert timed.visits == (4, 0, 1)
    assert "client 1, from version 0: error 2: as told" in caplog.text
    assert link.answer(1, APP)  # it is asked again
    timed.step()
    assert timed.visits[1] == 1


def test_an_app_that_always_raises_ends_the_run(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3))
    for _ in range(6):
        timed.step()
        for number in range(3):
            link.fail(number, 2)
    timed.step()
    for number in range(3):
        link.fail(number, 2)
    with pytest.raises(OffbeatError, match="failed 20 times and never trained, the last time: as told"):
        timed.step()


def test_a_message_whose_time_has_passed_is_a_lapse(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=1), lease_seconds=0.05)
    timed.step()
    (late,) = [message for number in range(3) for message in link.messages(number)]
    time.sleep(0.1)  # Flower's own clock decides about the TTL
    timed.step(0.1)
    assert timed.visits == (2, 0, 1)
    assert late.metadata.message_id not in timed.run._sent


def test_a_node_that_is_offline_loses_its_visit_and_comes_back(link, caplog):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3))
    timed.step()
    link.set_online(2, False)
    timed.step()
    assert timed.visits == (3, 0, 1)
    assert "client 2, from version 0: error 5" in caplog.text
    timed.step()
    assert timed.visits == (3, 0, 1)  # nobody else is free
    link.messages(2)
    link.set_online(2, True)
    timed.step()
    assert timed.visits == (4, 0, 1)
    link.answer(2, APP)
    timed.step()
    assert timed.visits[1] == 1


def test_nodes_that_are_often_offline_are_no_failures_of_the_app(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3))
    for _ in range(25):
        for online in (True, False):
            link.set_online(2, online)
            timed.step()
            link.messages(2)
    assert timed.visits == (27, 0, 25)


def test_a_node_that_comes_back_under_another_id_is_the_same_client(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=3))
    timed.step()
    link.set_online(2, False)
    timed.step()
    link.join()
    timed.step()
    assert timed.run._nodes.available[2] == link.nodes[3]
    assert timed.visits == (4, 0, 1)
    assert link.answer(3, APP)


@pytest.mark.parametrize(
    "algorithm",
    [lambda: MIFA(weighting="uniform"), lambda: FedLaAvg(cohort=2, weighting="uniform"), lambda: Port(min_clients=2)],
)
def test_other_algorithms_run(link, algorithm):
    timed = Timed(link, algorithm())
    for _ in range(12):
        timed.step()
        for number in range(3):
            link.answer(number, APP)
    assert timed.coordinator.algorithm.version >= 4
    assert timed.model[0] < 0.5


def test_a_difference_is_to_the_last_counted_update(link):
    # One client: u is its latest update, whatever it was before.
    timed = Timed(link, FedLaAvg(cohort=1, weighting="uniform"), clients=1)
    for version in range(1, 4):
        timed.step()
        link.answer(0, APP)
        timed.step()
        assert timed.model == [1 - version * 0.25]


def test_a_late_update_that_does_not_count_is_not_remembered(link):
    # The run's clock is ahead of Flower's, so the lease ends before the TTL.
    timed = Timed(link, FedLaAvg(cohort=1, weighting="uniform"), clients=1, lease_seconds=5.0)
    timed.step()
    timed.step(6.0)
    link.answer(0, APP)
    timed.step()
    assert timed.coordinator.statistics.unused == 1
    link.answer(0, APP)
    timed.step()
    assert timed.visits[1] == 1
    assert timed.model == [0.75]


def test_a_run_resumes_from_its_state():
    first = Timed(Link(3), FedLaAvg(cohort=1, weighting="uniform"), clients=1)
    first.step()
    first.link.answer(0, APP)
    first.step(5.0)
    state = first.run.state_dict()
    again = Timed(Link(3), FedLaAvg(cohort=1, weighting="uniform"), clients=1)
    again.run.load_state_dict(state)
    assert (again.model, again.visits) == ([0.75], (2, 1, 1))  # the message on its way is lost
    assert again.run.now == 5.0
    again.step()
    again.link.answer(0, APP)
    again.step()
    assert again.model == [0.5]  # it remembers the last difference


def test_a_period_passes(link):
    timed = Timed(link, AsyncCommSGD(period=10.0, pattern=round_robin(k=1, every=1), weighting="uniform"))
    timed.step()
    for number in range(3):
        link.answer(number, APP)
    timed.step(5.0)
    assert timed.coordinator.algorithm.version == 0
    timed.step(5.0)
    assert timed.coordinator.algorithm.version == 1
    again = Timed(Link(3), AsyncCommSGD(period=10.0, pattern=round_robin(k=1, every=1), weighting="uniform"))
    again.run.load_state_dict(timed.run.state_dict())
    again.step(9.0)
    assert again.coordinator.algorithm.round == timed.coordinator.algorithm.round
    again.step(1.0)
    assert again.coordinator.algorithm.round == timed.coordinator.algorithm.round + 1


def test_a_reply_to_an_unknown_message_is_nothing(link):
    timed = Timed(link, FedBuff(buffer_size=1, concurrency=1))
    timed.step()
    (message,) = [message for number in range(3) for message in link.messages(number)]
    timed.run._sent.clear()
    timed.run.take_in(Message(message.content, reply_to=message))
    assert timed.visits == (1, 0, 0)


def test_a_loss_is_taken_from_the_reply(link):
    seen = []

    class NeedsLoss(FedBuff):
        name = "needs_loss"
        needs_loss = True

        def weigh(self, update):
            seen.append(update.loss)
            return 1.0

    timed = Timed(link, NeedsLoss(buffer_size=1, concurrency=3))
    timed.step()
    link.answer(0, APP)
    link.answer(1, app_of(lambda message, context: reply(message, message.content["arrays"])))
    timed.step()
    assert seen == [0.5]
    assert timed.visits == (5, 1, 1)
