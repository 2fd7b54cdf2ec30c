"""The operations of a server of several runs for sites and people."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from offbeat_core.errors import OffbeatError
from pydantic import BaseModel

from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.hosting.home import Home
from offbeat.service.hosting.host_messages import HostStatus, ListedRun, ListedSite, SitePage
from offbeat.service.hosting.host_problems import host_problems
from offbeat.service.hosting.hosted_accounts import no_such_run
from offbeat.service.hosting.runs import Runs
from offbeat.service.hosting.site_erasure import SiteErasure
from offbeat.service.hosting.work_search import WorkSearch
from offbeat.service.internal.questions import CheckIn, Download, FindWork, Question
from offbeat.service.refusal import Refusal

if TYPE_CHECKING:
    from offbeat.service.hosting.hosted_run import HostedRun


class HostService:
    """Answers what concerns the server as a whole.

    ``is_ready`` until the server stops.
    """

    def __init__(self, home: Home, runs: Runs) -> None:
        self.home = home
        self.runs = runs
        self.accounts = home.accounts
        self.work = WorkSearch(home, runs)
        self.erasure = SiteErasure(home, runs)
        self.is_ready = True
        self.refusals: Counter[str] = Counter()

    def count_refusal(self, kind: str) -> None:
        """Count a refusal, also for the audit log."""
        self.refusals[kind] += 1
        self.accounts.audit.count("refusals", kind)

    def client(self, token: str) -> int:
        """Return the site of a valid token, by its SHA-256."""
        if not self.is_ready:
            raise Refusal("stopping", "the server is being stopped: try again later", {"Retry-After": "5"})
        return self.accounts.check_hash(token, "client")

    def check_may_open(self, run: str, token: str | None) -> None:
        """Refuse a token for which no run is opened.

        It is opened for a role's token, and for that of a site of the run.
        """
        self.accounts.check_any(token, may_have_ended=False)
        kind, site = self.accounts.holder_of(token or "")
        if kind == "enrolment":
            raise no_such_run(run)
        if site is not None:
            self._check_admitted(site, run)

    def _check_admitted(self, site: int, run: str) -> None:
        """Refuse a site of other runs: it must not learn whether this one is there."""
        if run not in self.home.state.admitted.get(site, ()):
            raise no_such_run(run)

    async def answer(self, question: Question[Any], *, has_waited: bool) -> BaseModel | Turn:
        """Return the answer to a front's question, or its turn; see ``Leader``."""
        if isinstance(question, FindWork):
            values = question.model_dump(include={"token", "wait_seconds", "protocol", "supports"})
            return await self.work.find(self.client(question.token), CheckIn(**values), question.without)
        name = question.run or ""
        if not self.runs.is_open(name):
            is_operators = isinstance(question, Download) and question.by_operator
            hashed: str = getattr(question, "token", "")
            site = self.accounts.check_hash(hashed, "operator" if is_operators else "client")
            if site >= 0:
                self._check_admitted(site, name)
        run = await self.runs.get(name)
        run.take_request()
        with run.used():
            return await run.service.leader.begin(question, has_waited=has_waited)

    async def confirm(self) -> None:
        """Wait until a denial holds after a kill, too."""
        await self.home.log_writer.wait_until_durable()

    async def create(self, name: str, file: str) -> ListedRun:
        """Begin a run; a file that cannot be used is refused in the words of its problem."""
        try:
            await self.runs.create(name, file)
        except OffbeatError as error:
            raise Refusal("malformed-request", str(error)) from None
        run = next((run for run in self.runs.at_work() if run.name == name), None)
        return self._look(name, run)[0]

    async def revoke(self, site: int) -> None:
        """Revoke a site's tokens, and free its slots in all runs."""
        self.accounts.revoke(site)
        await self.home.log_writer.wait_until_durable()
        names, problem = self.home.state.admitted.get(site, set()), None
        for run in list(self.runs.at_work()):
            try:
                if run.name in names:
                    await run.revoke(site)
            except Refusal as refusal:  # of a run whose disk is full; the others go first
                problem = refusal
        if problem is not None:
            raise problem

    def status(self) -> HostStatus:
        """Return the state of all runs."""
        sites, at_work = self.accounts.sites, {run.name: run for run in self.runs.at_work()}
        runs: list[ListedRun] = []
        failed: dict[str, str] = {}
        problems: dict[str, list[str]] = {}
        for name in self.home.state.runs:
            listed, problems[name] = self._look(name, at_work.get(name))
            runs.append(listed)
            if listed.state == "failed" and listed.problem is not None:
                failed[name] = listed.problem
        return HostStatus(
            problems=host_problems(self.home.log_writer.problem, failed, problems),
            runs=runs,
            sites=len(sites) - len(self.accounts.forgotten),
            revoked_sites=sum(site.revoked is not None and site.forgotten is None for site in sites.values()),
        )

    def _look(self, name: str, run: "HostedRun | None") -> tuple[ListedRun, list[str]]:
        """Return a run as lists show it, and its problems while it is at work."""
        record, problem = self.home.state.runs[name], self.runs.problem_of(name)
        if run is None or problem is not None:
            state = "failed" if problem is not None else "over" if record.is_over else "starting"
            return ListedRun(name=name, created=record.created, state=state, problem=problem), []
        now = run.service.service.status()
        listed = ListedRun(
            name=name,
            created=record.created,
            state="over" if now.finished else "paused" if now.paused else "at work",
            problem=next(iter(now.problems), None),
            algorithm=now.algorithm,
            version=now.version,
            stop_versions=now.stop_versions,
            enrolled=now.enrolled,
            clients=now.clients,
            waiting=now.waiting,
            at_work=now.at_work,
            counted=now.counted,
        )
        return listed, now.problems

    def sites(self, after: int, limit: int) -> SitePage:
        """Return at most ``limit`` sites whose numbers are above ``after``."""
        sites, state = self.accounts.sites, self.home.state
        numbers = range(after + 1, min(after + 1 + limit, len(sites)))
        listed = [
            ListedSite(
                site=number,
                name=sites[number].name,
                enrolled=sites[number].enrolled,
                revoked=sites[number].revoked,
                labels=sorted(state.labels.get(number, ())),
                runs=sorted(state.admitted.get(number, ())),
            )
            for number in numbers
            if sites[number].forgotten is None
        ]
        is_last = after + 1 + limit >= len(sites)
        return SitePage(
            total=len(sites) - len(self.accounts.forgotten), sites=listed, next=None if is_last else numbers[-1]
        )
