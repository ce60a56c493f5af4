"""The crew of every runtime of this repository: producers and trainer ranks are workers that a launcher starts, schedule, stores and judges
are services that its site offers.

The driver's thread owns nothing of the work: it sends orders, and sleeps in its inbox until somebody answers, dies, or presses Ctrl-C.
While the ranks train, everything else that it wants to know is asked for, so that nothing waits for it between two updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, Group, RlcoreError, RunError, Saving
from rlcore.api.runtime import (
    Crew,
    FilterWatch,
    Interrupt,
    Plan,
    ProbeFailedError,
    Status,
    TaskReport,
    Texts,
    Timing,
    Update,
    WorkerLostError,
    first_version,
    make_evaluator,
    schedule_settings,
    with_prompts,
)
from rlcore_plugin_workers.batch_reader import BatchReader
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.evaluating import Evaluations
from rlcore_plugin_workers.gathering import Gathered
from rlcore_plugin_workers.heartbeat import Heartbeats, Patience
from rlcore_plugin_workers.producer_team import ProducerTeam
from rlcore_plugin_workers.schedule_service import Order
from rlcore_plugin_workers.shipment import Shipment
from rlcore_plugin_workers.site import Site
from rlcore_plugin_workers.trainer_ranks import Ranks
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["WorkerCrew"]

_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 5.0
"""Between two looks at what changes seldom: which services there are, and which producer is overdue."""
_LAST_SECONDS = 5.0
_INTERRUPTED_SECONDS = 20.0
"""How long, at most, a batch is waited for after Ctrl-C."""


class WorkerCrew(Crew):
    """See ``Crew``. What must be loaded is loaded by all workers at the same time."""

    loop_role = "driver"

    def __init__(
        self,
        plan: Plan,
        texts: Texts,
        shipment: Shipment,
        site: Site,
        closing: ExitStack,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start the workers, and wait until they are ready. ``closing``: whoever made the site has it end what is left."""
        self._plan = plan
        self._say = say
        self._texts = texts
        self.tokenizer, self.dropped = texts.tokenizer, texts.dropped
        self.fingerprints = shipment.fingerprints
        schedule = schedule_settings(plan, len(texts.training))
        self.horizon, self.prompts = schedule.horizon, schedule.prompts
        self._inbox = DriverInbox()
        self._version = first_version(plan)
        self._order: Order | None = None
        self._trained: Order | None = None
        self._pending: Future[Order | None] | None = None
        self._closed = self._stopped = False
        self._site, self._schedule = site, site.schedule
        self._inbox.watch(self._schedule.call("lifetime"), self._schedule_ended)
        self._patience = patience = Patience.of(plan.config.schedule, plan.config.weights.deadline)
        self._heartbeats = Heartbeats(self._inbox, patience.silence_seconds)
        self._watched: list[Worker] = []
        self._watch_services()
        for notice in self._inbox.wait([site.prepare()])[0]:
            say(notice)
        config = plan.config
        self._ranks = Ranks(site, self._inbox, shipment, config.training.num_trainers, patience)
        self._team = ProducerTeam(site, self._inbox, shipment, config.inference.num_inferencer, patience=patience, say=say)
        self._reader = BatchReader(site, self._inbox, self._ranks)
        self._team.on_loss = self._ranks.producer_left
        closing.callback(self._close)
        self._evaluations = Evaluations(make_evaluator(plan, texts), self._team, self._inbox)
        self._gathered = Gathered(self._inbox, site, self._team, self._ranks)
        self._prepare()

    def _prepare(self) -> None:
        """Have everybody load, and give the producers the address of the weights."""
        loading = self._ranks.prepare(self.prompts, self._plan.config.run.master_port)
        self._inbox.wait([call for call in loading if call.done()], self._ranks.failed)  # no engine is loaded for nothing
        engines = self._team.prepare()
        address = self._inbox.wait(loading, self._ranks.failed)[0]
        self._ranks.learn_sharing()
        for note in self._inbox.wait(engines, self._team.failed)[0]:  # all have the same engine
            self._say(note)
        self._inbox.wait(self._team.connect(address), self._team.failed)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        interrupt.wakes.append(lambda: self._inbox.post(self._interrupt))
        self._listen_for_notes()
        self._ranks.watch(self._heartbeats)
        self._end_what_the_weights_gave_up()
        self._inbox.suspects = self._ranks.workers
        self._look_for_overdue()
        profiles = folder.resolve() if self._plan.config.run.enable_profiling else None
        self._team.run(profiles)
        try:
            self._ranks.start(self._texts.probe_ids(), profiles)
            self._team.wait_until_serving(self._version, self._plan.config.weights.deadline)
        except ProbeFailedError as error:
            raise self._other_model(error) from error

    def _other_model(self, error: ProbeFailedError) -> RlcoreError:
        """Before the first step; ConfigError if trainers and producers may have read the folder with different libraries."""
        config = self._plan.config
        if config.training.environment is None:
            return error
        there = config.inference.environment or "the driver's environment"
        return ConfigError(
            f"trainers in environment {config.training.environment} and producers in {there} do not read the same model from "
            f"{config.model.model}: {str(error).partition(';')[0]}; compare the transformers of the two and what they make of config.json "
            "(rope_parameters or rope_theta, tie_word_embeddings), or leave out --training-environment"
        )

    def next_batch(self) -> bool:
        if self._stopped:
            raise RunError("the producer was stopped while a batch was awaited")
        while True:
            pending, self._pending = self._pending or self._schedule.call("next_batch"), None
            self._order = self._answer(pending)
            if self._order is None:
                return False
            if self._fetch(self._order):
                return True

    def _interrupt(self) -> None:
        """On one host the groups that are under way are waited for, as long as they come soon: they may complete a step."""
        self._schedule.call("interrupt", self._site.one_host)
        if self._site.one_host:
            self._inbox.after(_INTERRUPTED_SECONDS, lambda: self._schedule.call("interrupt"))

    def _answer(self, call: Future[Any]) -> Any:
        """Of the coordinator."""
        return self._inbox.wait([call], lambda _, error: self._schedule_failed(error))[0]

    def _fetch(self, order: Order) -> bool:
        """Have the stores put the groups where the ranks can read them; False where some are gone, and the order is void."""
        absent = self._reader.fetch(order)
        if not absent:
            return True
        self._say(f"warning: {len(absent)} groups were lost with the store of their node; their prompts are generated again")
        self._answer(self._schedule.call("groups_lost", absent))
        return False

    def train(self, *, log_rollouts: bool) -> Update:
        order = self._order
        assert order is not None, "next_batch comes first"
        if self._plan.config.run.placement == "colocated":
            self._inbox.survivors([producer.call("sleep") for producer in self._team.workers])
        self._while_they_train()
        trained, *others = self._ranks.train(order, log_rollouts, self._reader.take())
        self._version = order.order.version + 1
        self._order, self._trained = None, order
        self._pending = self._schedule.call("next_batch", self._version)
        self._gathered.trained([trained, *others])
        for note in trained.notes:
            self._say(f"warning: {note}")
        return Update(
            version=self._version,
            figures={**trained.figures, **self._gathered.figures()},
            rollouts=tuple(with_prompts(trained.rollouts, self._texts.training)),
            times=self._gathered.times,
        )

    def _while_they_train(self) -> None:
        """What could wait until there was a batch: new leases, what was trained before, and all that the driver wants to know."""
        self._schedule.call("training")
        self._reader.preload(self._schedule.call("upcoming"))
        self._forget()
        self._gathered.ask()

    def _forget(self) -> None:
        """Have the stores drop what was trained."""
        if self._trained is not None:
            for name, store in self._site.stores().items():
                store.call("forget", self._trained.stores.get(name, ()))

    def evaluate(self, step: int) -> None:
        self._evaluations.start(step)

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        return self._evaluations.take(wait=wait)

    # --- what the run wants to know ----------------------------------------------------------------------------------

    def take_scored(self) -> Sequence[Group]:
        if not self._site.keep_scored:
            return ()
        scored = self._inbox.survivors([store.call("take_scored") for store in self._site.stores().values()])
        return [group for of_store in scored for group in of_store]

    def take_failures(self) -> list[dict[str, Any]]:
        return self._gathered.take_failures()

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        known = self._gathered.take_reward_faults()
        if last:
            answers = _last([judge.call("take_faults") for judge in self._site.judges()], _LAST_SECONDS)
            known += [fault for of_judge in answers for fault in of_judge]
        return known

    def remarks(self) -> list[str]:
        restarts: Mapping[str, int] = self._answer(self._schedule.call("restarts"))
        services = [f"the {what} of a node was started anew {times} time{'s' * (times > 1)}" for what, times in restarts.items()]
        return [*self._team.remarks(), *services]

    def save(self, folder: Path) -> Saving:
        return self._ranks.save(folder)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._answer(self._schedule.call("state", self._version))
        self._gathered.failures += self._answer(self._schedule.call("take_failures"))
        return state

    def status(self) -> Status:
        status: Status = self._answer(self._schedule.call("status"))
        return status

    def watch(self) -> FilterWatch:
        watch: FilterWatch = self._answer(self._schedule.call("watch"))
        return watch

    def start_clock(self) -> None:
        self._gathered.start()

    def timing(self) -> Timing:
        return self._gathered.stop()

    def stop(self) -> None:
        self._stopped = True
        self._schedule.call("stop")
        self._team.stop()
        self._gathered.finish()

    # --- who answers no more -----------------------------------------------------------------------------------------

    def _watch_services(self) -> None:
        """Those that are there now; others are made later, and a look for them costs nothing."""
        before, self._watched = self._watched, list(self._site.services())
        for service in self._watched:
            if service not in before:
                self._watch_service(service)
        self._inbox.after(_LOOK_SECONDS, self._watch_services)

    def _watch_service(self, service: Worker) -> None:
        """From its first answer on: until then its process starts."""
        first = service.call("lives")
        self._patience.while_loading(self._inbox, [service.name], [first])
        wanted, silent = partial(self._is_watched, service), partial(self._silent_service, service)
        self._inbox.watch(first, lambda value, error: self._heartbeats.watch(service, wanted, silent))

    def _is_watched(self, service: Worker) -> bool:
        return service in self._watched

    def _silent_service(self, service: Worker, error: RunError) -> None:
        if service is self._schedule:
            raise WorkerLostError(f"the coordinator was lost ({error})")
        service.kill()
        self._say(f"warning: {service.name} was lost ({error}); it is ended and started anew")
        self._watched.remove(service)  # its successor is watched from the next look on

    def _look_for_overdue(self) -> None:
        """Ask the schedule who has prompts and delivers nothing: an engine may answer, and lose what it was asked for."""
        call = self._schedule.call("overdue", self._patience.lease_seconds)
        self._inbox.watch(call, lambda names, error: None if error is not None else self._team.overdue(names))
        self._inbox.after(min(_LOOK_SECONDS, self._patience.lease_seconds / 4), self._look_for_overdue)

    # --- ends --------------------------------------------------------------------------------------------------------

    def _schedule_ended(self, value: Any, error: BaseException | None) -> None:
        if error is not None and not self._closed:
            raise self._schedule_failed(error)

    def _schedule_failed(self, error: BaseException) -> BaseException:
        if not isinstance(error, WorkerDiedError):
            return error
        return WorkerLostError(f"the coordinator died ({error.details or error})")

    def _listen_for_notes(self) -> None:
        def told(notes: Any, error: BaseException | None) -> None:
            if isinstance(error, RunError) and not isinstance(error, WorkerDiedError):
                raise error
            if error is None:  # else the coordinator died, which is said elsewhere
                for note in notes:
                    self._say(note)
                self._listen_for_notes()

        self._inbox.watch(self._schedule.call("next_notes"), told)

    def _end_what_the_weights_gave_up(self) -> None:
        """The publisher names producers; the driver ends each of them by the handle that it was started with."""

        def told(name: str | None, error: BaseException | None) -> None:
            if error is None and name is not None:  # else rank 0 died, which is said elsewhere, or closes
                self._team.end(name)
                self._end_what_the_weights_gave_up()

        self._inbox.watch(self._ranks.producer_to_end(), told)

    def _close(self) -> None:
        """Producers and ranks end their engines; whatever does not within a few seconds is killed by the launcher."""
        self._closed = True
        _last([*self._team.stop(), *self._ranks.close()], _CLOSE_SECONDS)


def _last(calls: Iterable[Future[Any]], seconds: float) -> list[Any]:
    """The last answers of those who live, as far as they come in time; raises nothing that was raised elsewhere."""
    done = wait_for(calls, seconds).done
    return [call.result() for call in done if not call.cancelled() and call.exception() is None]
