"""The queues of a service, simulated with its unit costs.

Arrivals are random (Poisson), costs fixed. A process works on one request at a time, bodies on all processors of their
machine; jobs queue in order. While a version is made the leader decides nothing. All rows that wait share a commit.
"""

import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

Action = Callable[[], None]

SMALL_MB = 0.065  # up to which updates lie in rows


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time, with TLS; MB are 10⁶ bytes.

    ``unit_costs.py`` and ``internal_connection.py`` measure them.
    """

    decide: float = 460e-6  # at the leader, for an update, without its rows
    small: float = 600e-6  # at a front, for an update of 31 kB
    check_in: tuple[float, float] = (64e-6, 266e-6)  # at leader and front
    beat: tuple[float, float] = (40e-6, 243e-6)
    connection: tuple[float, float] = (23e-6, 23e-6)  # of these, what one process saves
    small_connection: tuple[float, float] = (47e-6, 48e-6)  # the same of an update of 31 kB
    up: float = 2.4e-3  # at a front, per MB received, checked with SHA-256 and written
    down: float = 0.7e-3  # at a front, per MB sent
    add: float = 0.2e-3  # at the leader, per MB of each update in a version
    version: float = 4.3e-3  # at the leader, per MB of a version
    any_version: float = 4e-3  # and for each version
    commit: float = 1.34e-3  # at the leader, for each commit
    row: float = 12e-6  # and for each of its rows
    row_mb: float = 2.7e-3  # and for each MB of small updates in rows
    sync: float = 8e-3  # until a commit is durable, without processor time


@dataclass(frozen=True)
class Service:
    """Machines, and what their clients do; MB and MB/s."""

    clients: float
    size: float  # MB of a model, and of an update
    k: float  # updates in a version
    machines: int = 0  # of fronts; 0: the leader's machine serves clients
    fronts: int = 0  # processes on each of them; 0: the leader's own
    cores: int = 8
    network: float = 1250.0  # each way, of each machine
    disk: float = 1000.0
    visit_every: float = 3600.0  # seconds from one visit of a client to the next
    visit_seconds: float = 600.0
    beats: float = 3.0  # in a visit
    check_in_every: float = 26.0  # seconds, of a client without work

    @property
    def visits(self) -> float:
        """Visits a second."""
        return self.clients / self.visit_every

    def times(self, factor: float) -> "Service":
        """Return the service with so many times the clients."""
        return replace(self, clients=self.clients * factor)

    @property
    def requests(self) -> float:
        """Requests a second."""
        return self.visits * (2 + self.beats) + self.check_ins

    @property
    def check_ins(self) -> float:
        """Check-ins a second of clients without work."""
        return self.clients * (1 - self.visit_seconds / self.visit_every) / self.check_in_every

    @property
    def places(self) -> int:
        """The machines that serve clients."""
        return max(1, self.machines)


class Clock:
    """Virtual time, and what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._count = 0

    def at(self, seconds: float, action: Action) -> None:
        """Do something so many seconds from now."""
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, action))

    def run(self, until: float) -> None:
        """Do all that is due until then."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()


class Machine:
    """Processors that processes share; a disk or a link is one with one process."""

    def __init__(self, clock: Clock, cores: int) -> None:
        self._clock = clock
        self._free = cores
        self._processes: list[Process] = []

    def process(self, name: str, width: int = 1) -> "Process":
        """Return a new process that does ``width`` jobs at once."""
        self._processes.append(process := Process(self, name, width))
        return process

    def add(self, process: "Process", seconds: float, then: Action) -> None:
        """Queue a job."""
        process.waiting.append((self._clock.now, seconds, then))
        self._start()

    def _start(self) -> None:
        while self._free:
            ready = [one for one in self._processes if one.waiting and one.free]
            if not ready:
                return
            process = min(ready, key=lambda one: one.waiting[0][0])
            _, seconds, then = process.waiting.popleft()
            self._free -= 1
            process.free -= 1
            process.busy += seconds
            self._clock.at(seconds, partial(self._end, process, then))

    def _end(self, process: "Process", then: Action) -> None:
        self._free += 1
        process.free += 1
        then()
        self._start()


class Process:
    """A queue of jobs; ``busy`` is the time that they have taken."""

    def __init__(self, machine: Machine, name: str, width: int) -> None:
        self.name = name
        self.width = self.free = width
        self.waiting: deque[tuple[float, float, Action]] = deque()
        self.busy = 0.0
        self.work = partial(machine.add, self)


class LogWriter:
    """Commits all rows that wait at once."""

    def __init__(self, clock: Clock, process: Process, costs: Costs) -> None:
        self._clock = clock
        self._process = process
        self._costs = costs
        self._next: list[tuple[float, Action]] = []
        self._is_busy = False

    def enter(self, seconds: float, then: Action) -> None:
        """Enter rows that cost ``seconds``; ``then`` once they are durable."""
        self._next.append((seconds, then))
        if not self._is_busy:
            self._commit()

    def _commit(self) -> None:
        batch, self._next = self._next, []
        self._is_busy = bool(batch)
        if batch:
            seconds = self._costs.commit + sum(each for each, _ in batch)
            self._process.work(seconds, lambda: self._clock.at(self._costs.sync, lambda: self._end(batch)))

    def _end(self, batch: list[tuple[float, Action]]) -> None:
        for _, then in batch:
            then()
        self._commit()


@dataclass
class Place:
    """The processes, links and disk that serve clients on one machine."""

    fronts: list[Process]
    bodies: Process
    up: Process
    down: Process
    disk: Process


@dataclass
class World:
    """The queues of a service."""

    service: Service
    costs: Costs
    clock: Clock = field(default_factory=Clock)
    answered: list[float] = field(default_factory=list[float])  # how long uploads took
    arrived: int = 0

    def __post_init__(self) -> None:
        service, clock = self.service, self.clock
        self.home = home = Machine(clock, service.cores)
        self.leader, log = home.process("leader"), home.process("log")
        self.log = LogWriter(clock, log, self.costs)
        self.link = Machine(clock, 1).process("leader's network")  # for bodies from other machines
        self.places = [
            self._place(home if not service.machines else Machine(clock, service.cores)) for _ in range(service.places)
        ]
        self.processes = [self.leader, log, self.link]
        for place in self.places:
            self.processes += [
                place.bodies,
                place.up,
                place.down,
                place.disk,
                *(f for f in place.fronts if f is not self.leader),
            ]
        self._updates = 0

    def _place(self, machine: Machine) -> Place:
        fronts = [machine.process("fronts") for _ in range(self.service.fronts)] or [self.leader]
        single = [Machine(self.clock, 1).process(name) for name in ("network up", "network down", "disk")]
        return Place(fronts, machine.process("bodies", self.service.cores), *single)

    def _front(self) -> tuple[Place, Process]:
        place = random.choice(self.places)
        return place, random.choice(place.fronts)

    def _cost(self, pair: tuple[float, float]) -> tuple[float, float]:
        saved = (0.0, 0.0) if self.service.fronts else self.costs.connection
        return pair[0] - saved[0], pair[1] - saved[1]

    def ask(self, pair: tuple[float, float], then: Action = lambda: None) -> None:
        """Make a small request that changes nothing."""
        at_leader, at_front = self._cost(pair)
        self._front()[1].work(at_front, lambda: self.leader.work(at_leader, then))

    def download(self) -> None:
        """Check in, and get a model."""
        size, costs = self.service.size, self.costs
        place, _ = self._front()
        send = partial(place.down.work, size / self.service.network, lambda: None)
        self.ask(costs.check_in, lambda: self.ask(costs.check_in, lambda: place.bodies.work(costs.down * size, send)))

    def upload(self, then: Action = lambda: None) -> None:
        """Upload an update, with the next check-in in it."""
        service, costs, began = self.service, self.costs, self.clock.now
        place, front = self._front()
        self.arrived += 1
        saved = (0.0, 0.0) if service.fronts else costs.small_connection
        at_leader, at_front = costs.decide - saved[0], costs.small - saved[1]
        row = 2 * costs.row + (costs.row_mb * service.size if service.size <= SMALL_MB else 0)

        def answer() -> None:
            self.answered.append(self.clock.now - began)
            then()

        def decide() -> None:
            self._updates += 1
            if self._updates % service.k == 0:
                self.leader.work(
                    costs.any_version + (costs.add * service.k + costs.version) * service.size, lambda: None
                )
            self.leader.work(at_leader, lambda: self.log.enter(row, answer))

        def fetch() -> None:
            if service.machines and service.size > SMALL_MB:
                self.link.work(service.size / service.network, decide)
            else:
                decide()

        def write() -> None:
            place.disk.work(service.size / service.disk, fetch)

        if service.size <= SMALL_MB:
            front.work(at_front, decide)
        else:
            check = partial(place.bodies.work, costs.up * service.size, write)
            receive = partial(place.up.work, service.size / service.network, check)
            self.ask(costs.check_in, lambda: front.work(at_front, receive))

    def stream(self, rate: float, work: Action) -> None:
        """Do something again and again at random times."""

        def again() -> None:
            work()
            self.clock.at(random.expovariate(rate), again)

        self.clock.at(random.expovariate(rate), again)

    def run(self, arrivals: int = 30_000) -> float:
        """Run until so many requests have come; return the seconds."""
        service, costs = self.service, self.costs
        self.stream(service.visits, self.download)
        self.stream(service.visits, self.upload)
        self.stream(service.visits * service.beats, lambda: self.ask(costs.beat))
        if service.check_ins:
            self.stream(service.check_ins, lambda: self.ask(costs.check_in))
        until = arrivals / service.requests
        self.clock.run(until)
        return until

    def used(self, seconds: float) -> dict[str, float]:
        """Return the busiest queue's utilisation for each name."""
        found: dict[str, list[float]] = {}
        for process in self.processes:
            found.setdefault(process.name, []).append(process.busy / process.width / seconds)
        return {name: statistics.mean(values) for name, values in found.items()}
