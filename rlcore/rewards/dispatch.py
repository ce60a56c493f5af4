"""The thread that owns worker processes: it assigns tasks, enforces deadlines, and replaces dead workers.

It waits in one selector for sockets, deaths and the next deadline, and never blocks on a worker. A task that is answered gives a result. A
task is tried once more, alone, if it hung or filled the memory, if its worker died, or if its reward reported a failure of the machine. If
that happens again, its outcome is ``timeout``, ``error`` or ``infra``. Other workers meanwhile score the tasks that were queued behind it
in the same job, without penalty.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence

from rlcore.contracts.types import Outcome
from rlcore.rewards.reward_entry import Traits
from rlcore.rewards.task_queue import QueuedTask, Result, ResultInbox, TaskQueue
from rlcore.rewards.worker_process import WorkerProcess, WorkerState
from rlcore.rewards.worker_protocol import Broken, Call, Done, Ready, Task, WorkerLimits, encode
from rlcore.rewards.worker_results import failed

__all__ = ["UNASKED", "Dispatcher"]

_PATIENCE = 0.1  # seconds after which tasks behind a slow one are offered to other workers too
_LOOK = 0.2  # seconds between two memory checks of a worker with a slow call
_RETIRE_SECONDS = 5.0
_GATHER_SECONDS = 0.002
_CLOSE_SECONDS = 2.0
_FAILED_STARTS = 3  # in a row, for each worker, before the pool gives up
_KILLED_STARTS = 10  # additional attempts if something outside killed them or refused a process
_LONGEST_PAUSE = 2.0
UNASKED = "it answered a task that it did not have"  # something in the worker writes to its socket, so none of its messages can be trusted


class Dispatcher:
    """See the module docstring. Any thread may call ``submit``, ``cancel``, ``stop``, ``wait_started`` and ``pids``.

    Workers die with the thread that created them, because the kernel ties them to a thread. Therefore only ``run``, which lasts as long as
    the pool, creates workers.
    """

    asynchronous = False
    _sparing = True

    def __init__(self, setup: bytes, *, workers: int, inbox: ResultInbox, start_seconds: float, limits: WorkerLimits) -> None:
        self._max_call = limits.call
        self._setup, self._target, self._inbox, self._start_seconds = setup, workers, inbox, start_seconds
        self._lock = threading.Lock()
        self._queue = TaskQueue(workers)
        self._workers: list[WorkerProcess] = []
        self._ended: list[Result] = []
        self._spares = 0
        self._failed_starts = 0
        self._pause_until = 0.0
        self._stopping = False
        self._started = threading.Event()
        self._answer: tuple[Traits, ...] | str = ""
        self.notices: dict[tuple[int, str], None] = {}
        """(index of the reward, its notice about this machine), as reported by workers; ordered."""
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)

    # --- called from any thread -------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[tuple[Task, bytes]]) -> None:
        """Queue tasks with their pickles."""
        with self._lock:
            self._queue.extend(QueuedTask(task, payload) for task, payload in tasks)
        self._wake()

    def cancel(self, task_ids: set[int]) -> None:
        """Drop queued tasks. The results of running ones are discarded."""
        with self._lock:
            self._queue.cancel(task_ids, running=[item for worker in self._workers for item in tuple(worker.job)])

    def stop(self) -> None:
        """End the thread, which ends the workers."""
        self._stopping = True
        self._wake()

    def wait_started(self) -> tuple[Traits, ...] | str:
        """Return the traits of the rewards once the first worker is ready, or one sentence why none can be."""
        self._started.wait()
        return self._answer

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # already awake, or closed and therefore stopped
            self._wake_out.send(b"!")

    # --- the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until ``stop``. An unexpected error ends the pool with its reason, never silently."""
        try:
            while not self._stopping and not self._inbox.fatal:
                self._top_up()
                self._assign()
                self._turn()
            self._close_idle_workers()
        except Exception as error:
            self._fail(f"the reward pool broke down ({type(error).__name__}: {error}); this is a bug in rlcore; please report it")
            raise
        finally:
            self._shut()

    def _turn(self) -> None:
        due = [worker.due for worker in self._workers if worker.due is not None]
        if self._lacking and not self._stopping:
            due.append(self._pause_until)
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        if self._unhurried():
            time.sleep(_GATHER_SECONDS)
        for key, mask in self._selector.select(wait):
            if key.data is None:
                self._drain_wake()
                continue
            worker, handle = key.data
            if worker.state is not WorkerState.DEAD:
                handle(worker, mask)
        now = time.monotonic()
        for worker in [w for w in self._workers if w.due is not None and w.due <= now]:
            self._overdue(worker)
        self._hand_over()

    def _unhurried(self) -> bool:
        """Return whether every busy worker has enough tasks for answers to accumulate. On a fully loaded machine, each wake-up of this
        thread slows the workers down."""
        enough = 2 * _GATHER_SECONDS
        busy = [worker for worker in self._workers if worker.state is WorkerState.BUSY]
        return bool(busy) and all(self._queue.expected(len(worker.job)) > enough for worker in busy)

    def _hand_over(self) -> None:
        if self._ended:
            ended, self._ended = self._ended, []
            self._inbox.put(ended)

    def _drain_wake(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            return

    @property
    def _lacking(self) -> bool:
        return sum(worker.state is not WorkerState.RETIRING for worker in self._workers) < self._target + self._spares

    def _top_up(self) -> None:
        while not self._inbox.fatal and self._lacking and time.monotonic() >= self._pause_until:
            try:
                worker = WorkerProcess(self._setup, asynchronous=self.asynchronous)
            except OSError as error:
                reason = f"a reward worker cannot be started ({error}); free memory or processes, or lower schedule.reward_workers"
                self._not_started(reason, patience=_KILLED_STARTS)
                return
            worker.due = time.monotonic() + self._start_seconds
            with self._lock:
                self._workers.append(worker)
            self._register(worker)

    def _register(self, worker: WorkerProcess) -> None:
        self._watch(worker, worker.channel, self._on_channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._watch(worker, worker.stderr, self._on_stderr)
        if worker.death is not None:
            self._watch(worker, worker.death, self._on_death)

    def _watch(
        self, worker: WorkerProcess, what: object, handle: Callable[[WorkerProcess, int], None], events: int = selectors.EVENT_READ
    ) -> None:
        self._selector.register(what, events, (worker, handle))  # type: ignore[arg-type]

    def _send(self, worker: WorkerProcess, frame: bytes) -> None:
        worker.outbox += frame
        worker.write()
        self._want_write(worker)

    def _want_write(self, worker: WorkerProcess) -> None:
        if bool(worker.outbox) == worker.writing:
            return
        worker.writing = not worker.writing
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.writing else 0)
        self._selector.modify(worker.channel, events, (worker, self._on_channel))

    def _on_channel(self, worker: WorkerProcess, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            worker.write()
            self._want_write(worker)
        if mask & selectors.EVENT_READ:
            try:
                for message in worker.read():
                    self._on_message(worker, message)
            except EOFError:
                self._handle_death(worker)

    def _on_death(self, worker: WorkerProcess, mask: int) -> None:
        self._on_channel(worker, selectors.EVENT_READ)  # its last messages count
        if worker.state is not WorkerState.DEAD:
            self._handle_death(worker)

    def _on_stderr(self, worker: WorkerProcess, mask: int) -> None:
        if not worker.read_stderr():
            self._selector.unregister(worker.stderr)

    def _on_message(self, worker: WorkerProcess, message: object) -> None:
        if worker.state is WorkerState.DEAD:
            return  # removed because of an earlier message
        if isinstance(message, Ready):
            worker.state, worker.due, worker.opened = WorkerState.IDLE, None, worker.memory()
            self.notices.update({(place, traits.notice): None for place, traits in enumerate(message.traits) if traits.notice})
            self._begin(message.traits)
        elif isinstance(message, Broken):
            self._remove(worker)
            mend = "" if message.infra else "; fix its options or its code"
            self._not_started(f"reward {message.name!r} cannot be built ({message.reason}){mend}", patience=0 if message.infra else None)
        elif isinstance(message, Done):
            self._on_done(worker, message)

    def _on_done(self, worker: WorkerProcess, done: Done) -> None:
        if not worker.job or worker.job[0].task.task_id != done.task_id:
            self._handle_death(worker, UNASKED)
            return
        with self._lock:
            item = worker.job.popleft()
        self._answered(worker, item, done)
        if done.retire:
            self._retire(worker)
            self._put_back(worker)
        elif worker.job:
            self._prefetch(worker)
            self._set_clock(worker)
        else:
            worker.state, worker.due = WorkerState.IDLE, None

    def _retire(self, worker: WorkerProcess) -> None:
        worker.state, worker.due = WorkerState.RETIRING, time.monotonic() + _RETIRE_SECONDS

    def _set_clock(self, worker: WorkerProcess) -> None:
        """Start the clock: the first task of the job begins now."""
        now = time.monotonic()
        worker.limit = now + worker.job[0].task.deadline
        worker.due = min(worker.limit, now + _PATIENCE) if len(worker.job) > 1 else self._next_look(worker, now)

    def _next_look(self, worker: WorkerProcess, now: float) -> float:
        return min(worker.limit, now + _LOOK) if self._max_call else worker.limit

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        busy = sum(worker.state is WorkerState.BUSY for worker in self._workers)
        for worker in [w for w in self._workers if w.state is WorkerState.IDLE][: max(0, self._target - busy)]:
            with self._lock:
                worker.job.extend(self._queue.next_job())
            if not worker.job:
                return
            worker.state = WorkerState.BUSY
            self._set_clock(worker)
            self._send(worker, encode([(item.task.task_id, item.payload) for item in worker.job]))

    def _prefetch(self, worker: WorkerProcess) -> None:
        """Send the next job before the last task of the current one ends, so that the worker does not wait for the round trip."""
        if len(worker.job) > 1 or worker.job[0].retried:
            return
        with self._lock:
            more = self._queue.next_job(suspects=False)
            worker.job.extend(more)
        if more:
            self._send(worker, encode([(item.task.task_id, item.payload) for item in more]))

    def _answered(self, worker: WorkerProcess, item: QueuedTask, done: Done) -> None:
        """Handle an answer: a result, or an accident of the machine that justifies one more attempt."""
        worker.served, self._failed_starts = True, 0
        with self._lock:
            self._queue.observe(done.seconds)
        if done.again:
            self._failed_once(item, done)
        else:
            self._finish(item, done)

    def _failed_once(self, item: QueuedTask, done: Done) -> None:
        """Try the task once more, alone, at the end of the queue. The second failure is final."""
        with self._lock:
            again = self._queue.retry(item)
        if not again:
            self._finish(item, done)

    def _put_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._queue.put_back(worker.job)
            worker.job.clear()

    def _suspect(self, worker: WorkerProcess, culprits: Sequence[QueuedTask], outcome: Outcome, reason: str) -> None:
        """Retry the tasks that brought the worker down, or may have. Its other tasks return to the queue.

        Such failures tend to repeat, so from now on a spare worker is kept ready: a start takes longer than many deadlines.
        """
        self._spares = 1 + self._target // 8 if self._sparing else 0
        with self._lock:
            for item in culprits:
                worker.job.remove(item)
        self._put_back(worker)
        for item in culprits:
            seconds = item.task.deadline if outcome is Outcome.TIMEOUT else 0.0
            self._failed_once(item, failed(item.task.task_id, len(item.task.items), outcome, reason, seconds))

    def _finish(self, item: QueuedTask, done: Done) -> None:
        with self._lock:
            if not self._queue.answer(item):
                return
        task = item.task
        self._ended.append(
            Result(
                task=task,
                scores=() if task.call is Call.CHECK else done.scores,
                complaint=done.complaint,
                seconds=done.seconds,
                failure=done.failure,
                trace=done.trace,
            )
        )

    # --- ends -------------------------------------------------------------------------------------------------------

    def _overdue(self, worker: WorkerProcess) -> None:
        if worker.state is WorkerState.BUSY:
            self._look_at(worker)
        elif worker.state is WorkerState.STARTING:
            self._remove(worker)
            self._not_started(f"the rewards were not ready after {self._start_seconds:g} s; their open() or imports are too slow")
        else:
            self._remove(worker)

    def _look_at(self, worker: WorkerProcess) -> None:
        """Handle a slow busy worker: offer its other tasks to the rest, or kill it if it exceeded its time or memory."""
        if self._outgrown(worker):
            return
        if (now := time.monotonic()) < worker.limit:
            worker.due = self._next_look(worker, now)
            with self._lock:
                self._queue.lend(list(worker.job)[1:])
            return
        head = worker.job[0]
        self._remove(worker)
        self._suspect(worker, [head], Outcome.TIMEOUT, f"no verdict within {head.task.deadline:g} s, twice")

    def _outgrown(self, worker: WorkerProcess) -> bool:
        """Kill the worker if its memory grew by more than a call may add since its rewards were opened. Return whether it was killed."""
        if not self._max_call or worker.memory() - worker.opened <= self._max_call:
            return False
        culprits = self._culprits(worker)
        self._remove(worker)
        reason = f"one call took more than {self._max_call >> 20} MiB of memory, twice (schedule.reward_call_memory_mb)"
        self._suspect(worker, culprits, Outcome.ERROR, reason)
        return True

    def _handle_death(self, worker: WorkerProcess, reason: str = "") -> None:
        """Remove a dead worker, or one that must die for ``reason``. The tasks that it was scoring are suspected.

        A worker that ended before its first task may hold a reward that ends its own process. It would otherwise be restarted forever."""
        state, culprits = worker.state, self._culprits(worker)
        self._remove(worker)
        how = reason or worker.death_notice()
        if state is WorkerState.BUSY:
            self._suspect(worker, culprits, Outcome.INFRA, f"the worker scoring it died, twice ({how})")
        elif state is not WorkerState.RETIRING and not worker.served:
            patience = _KILLED_STARTS if worker.killed else None
            self._not_started(f"a reward worker ended before its first task ({how})", patience=patience)

    def _culprits(self, worker: WorkerProcess) -> list[QueuedTask]:
        return list(worker.job)[:1]

    def _remove(self, worker: WorkerProcess) -> None:
        for watched in (worker.channel, worker.stderr, worker.death):
            if watched is not None and watched in self._selector.get_map():
                self._selector.unregister(watched)
        worker.state, worker.due = WorkerState.DEAD, None
        with self._lock:
            self._workers.remove(worker)  # before its process id is free for another process
        worker.kill()
        worker.reap()

    def _not_started(self, reason: str, *, patience: int | None = None) -> None:
        """Schedule another start, with pauses after repeated failures, or give up.

        :param patience: further attempts beyond the usual number. None allows no attempt before the first worker was ready, because a
            reward that cannot be built now cannot be built later."""
        self._failed_starts += 1
        unpaused = self._failed_starts - self._target
        self._pause_until = time.monotonic() + min(_LONGEST_PAUSE, 0.25 * unpaused) if unpaused > 0 else 0.0
        hopeless = patience is None and not self._started.is_set()
        if hopeless or self._failed_starts >= _FAILED_STARTS * self._target + (patience or 0):
            self._fail(reason)

    def _begin(self, answer: tuple[Traits, ...] | str) -> None:
        if not self._started.is_set():
            self._answer = answer
            self._started.set()

    def _fail(self, reason: str) -> None:
        self._begin(reason)
        self._inbox.fail(reason)

    def _close_idle_workers(self) -> None:
        """Give idle workers a moment to close their rewards; ``_shut`` kills the rest."""
        for worker in list(self._workers):
            if worker.state is WorkerState.IDLE:
                self._send(worker, encode(None))
                worker.state = WorkerState.RETIRING
            elif worker.state is not WorkerState.RETIRING:
                self._remove(worker)
        limit = time.monotonic() + _CLOSE_SECONDS
        for worker in self._workers:
            worker.due = limit
        while self._workers:
            self._turn()

    def _shut(self) -> None:
        for worker in list(self._workers):
            self._remove(worker)
        self._hand_over()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self._begin("the reward pool was closed before it was ready")
