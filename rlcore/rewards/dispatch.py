"""The thread that owns the worker processes: hands out tasks, enforces deadlines, replaces the dead.

It waits in one selector for sockets, deaths and the next deadline, and never blocks on a worker. What happens to a task:
answered -> result; hung or its worker died -> once more, alone; again -> outcome ``timeout`` or ``infra``. Tasks that merely stood
behind it in the same job go back to the head of the queue, untouched.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlcore.rewards.entry import Traits
from rlcore.rewards.inbox import Inbox, Result
from rlcore.rewards.process import State, WorkerProcess
from rlcore.rewards.protocol import Broken, Call, Done, Ready, Task, encode
from rlcore.types import Outcome, Score

__all__ = ["Dispatcher"]

_JOB = 16  # tasks sent to a worker at once, at most: enough to hide the way there and back
_RETIRE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_FAILED_STARTS = 3


@dataclass(slots=True)
class _Item:
    task: Task
    payload: bytes
    retried: bool = False


class Dispatcher:
    """See the module. ``submit``, ``cancel``, ``stop``, ``wait_started`` and ``pids`` may be called from any thread."""

    def __init__(self, setup: bytes, *, workers: int, inbox: Inbox, start_seconds: float) -> None:
        self._setup, self._target, self._inbox, self._start_seconds = setup, workers, inbox, start_seconds
        self._lock = threading.Lock()
        self._queue: deque[_Item] = deque()
        self._cancelled: set[int] = set()
        self._workers: list[WorkerProcess] = []
        self._failed_starts = 0
        self._stopping = False
        self._started = threading.Event()
        self._answer: tuple[Traits, ...] | str = ""
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)

    # --- called from any thread -------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[tuple[Task, bytes]]) -> None:
        """Queue tasks with their pickles."""
        with self._lock:
            self._queue.extend(_Item(task, payload) for task, payload in tasks)
        self._wake()

    def cancel(self, task_ids: set[int]) -> None:
        """Drop queued tasks; results of running ones are thrown away."""
        with self._lock:
            self._queue = deque(item for item in self._queue if item.task.task_id not in task_ids)
            running = {item.task.task_id for worker in self._workers for item in tuple(worker.job)}
            self._cancelled |= task_ids & running

    def stop(self) -> None:
        """End the thread; it takes the workers with it."""
        self._stopping = True
        self._wake()

    def wait_started(self) -> tuple[Traits, ...] | str:
        """Traits of the rewards once the first worker is ready, or one sentence why none can be."""
        self._started.wait()
        return self._answer

    def pids(self) -> list[int]:
        """Workers alive now."""
        with self._lock:
            return [worker.pid for worker in self._workers if worker.state is not State.RETIRING]

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"!")
        except BlockingIOError:
            return  # awake already
        except OSError:
            return  # closed: stopped already

    # --- the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until ``stop``. An unforeseen error ends the pool with its reason, never silently."""
        try:
            while not self._stopping and not self._inbox.fatal:
                self._top_up()
                self._assign()
                self._turn()
            self._farewell()
        except Exception as error:
            self._fail(f"the reward pool broke down ({type(error).__name__}: {error}); this is a fault of rlcore, please report it")
            raise
        finally:
            self._shut()

    def _turn(self) -> None:
        due = [worker.due for worker in self._workers if worker.due is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        for key, mask in self._selector.select(wait):
            if key.data is None:
                self._drain_wake()
                continue
            worker, handle = key.data
            if worker.state is not State.DEAD:
                handle(worker, mask)
        now = time.monotonic()
        for worker in [w for w in self._workers if w.due is not None and w.due <= now]:
            self._overdue(worker)

    def _drain_wake(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            return

    def _top_up(self) -> None:
        while not self._inbox.fatal and sum(worker.state is not State.RETIRING for worker in self._workers) < self._target:
            try:
                worker = WorkerProcess(self._setup)
            except OSError as error:
                self._fail(f"a reward worker cannot be started ({error}); free memory or processes, or lower schedule.reward_workers")
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
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outbox else 0)
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
                self._bury(worker)

    def _on_death(self, worker: WorkerProcess, mask: int) -> None:
        self._on_channel(worker, selectors.EVENT_READ)  # what it still said counts
        if worker.state is not State.DEAD:
            self._bury(worker)

    def _on_stderr(self, worker: WorkerProcess, mask: int) -> None:
        if not worker.read_stderr():
            self._selector.unregister(worker.stderr)

    def _on_message(self, worker: WorkerProcess, message: object) -> None:
        if isinstance(message, Ready):
            self._failed_starts = 0
            worker.state, worker.due = State.IDLE, None
            self._begin(message.traits)
        elif isinstance(message, Broken):
            self._remove(worker)
            self._not_started(f"reward {message.name!r} cannot be built ({message.reason}); mend its options or its code")
        elif isinstance(message, Done):
            self._on_done(worker, message)

    def _on_done(self, worker: WorkerProcess, done: Done) -> None:
        with self._lock:
            item = worker.job.popleft()
        if done.task_id != item.task.task_id:
            raise RuntimeError(f"worker {worker.pid} answered task {done.task_id} where {item.task.task_id} was next")
        self._finish(item.task, done.scores, done.complaint, done.seconds)
        if done.retire:
            worker.state, worker.due = State.RETIRING, time.monotonic() + _RETIRE_SECONDS
            self._put_back(worker)
        elif worker.job:
            worker.due = time.monotonic() + worker.job[0].task.deadline
        else:
            worker.state, worker.due = State.IDLE, None

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        for worker in [w for w in self._workers if w.state is State.IDLE]:
            with self._lock:
                worker.job.extend(self._next_job())
            if not worker.job:
                return
            worker.state, worker.due = State.BUSY, time.monotonic() + worker.job[0].task.deadline
            self._send(worker, encode([(item.task.task_id, item.payload) for item in worker.job]))

    def _next_job(self) -> list[_Item]:
        """The head of the queue: one suspect alone, or a share that shrinks as the queue does, so that workers end together."""
        size = max(1, min(_JOB, len(self._queue) // (2 * self._target)))
        job: list[_Item] = []
        while self._queue and len(job) < size and not (job and self._queue[0].retried):
            job.append(self._queue.popleft())
            if job[0].retried:
                break
        return job

    def _put_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._queue.extendleft(reversed(worker.job))
            worker.job.clear()

    def _suspect(self, worker: WorkerProcess, outcome: Outcome, reason: str) -> None:
        """The first item of the job brought the worker down: once more and alone, at the end of the queue, or its verdict."""
        with self._lock:
            item = worker.job.popleft()
        self._put_back(worker)
        if not item.retried and item.task.task_id not in self._cancelled:
            item.retried = True
            with self._lock:
                self._queue.append(item)
            return
        seconds = item.task.deadline if outcome is Outcome.TIMEOUT else 0.0
        self._finish(item.task, (Score.failed(outcome, reason),) * len(item.task.items), reason, seconds)

    def _finish(self, task: Task, scores: tuple[Score, ...], complaint: str | None, seconds: float) -> None:
        with self._lock:
            if task.task_id in self._cancelled:
                self._cancelled.discard(task.task_id)
                return
        if task.call is Call.CHECK:
            scores = ()
        self._inbox.put(Result(task=task, scores=scores, complaint=complaint, seconds=seconds))

    # --- ends -------------------------------------------------------------------------------------------------------

    def _overdue(self, worker: WorkerProcess) -> None:
        if worker.state is State.BUSY:
            deadline = worker.job[0].task.deadline
            self._remove(worker)
            self._suspect(worker, Outcome.TIMEOUT, f"no verdict within {deadline:g} s, twice")
        elif worker.state is State.STARTING:
            self._remove(worker)
            self._not_started(f"the rewards were not ready after {self._start_seconds:g} s; their open() or imports are too slow")
        else:
            self._remove(worker)

    def _bury(self, worker: WorkerProcess) -> None:
        state = worker.state
        self._remove(worker)
        if state is State.BUSY:
            self._suspect(worker, Outcome.INFRA, f"the worker judging it died, twice ({worker.epitaph()})")
        else:
            # Idle or starting: nobody asked anything of it, so a reward that ends its own process would be started again for ever.
            self._not_started(f"a reward worker ended before it was asked anything ({worker.epitaph()})")

    def _remove(self, worker: WorkerProcess) -> None:
        for watched in (worker.channel, worker.stderr, worker.death):
            if watched is not None and watched in self._selector.get_map():
                self._selector.unregister(watched)
        worker.kill()
        worker.reap()
        worker.state, worker.due = State.DEAD, None
        with self._lock:
            self._workers.remove(worker)

    def _not_started(self, reason: str) -> None:
        self._failed_starts += 1
        if not self._started.is_set() or self._failed_starts >= _FAILED_STARTS:
            self._fail(reason)

    def _begin(self, answer: tuple[Traits, ...] | str) -> None:
        if not self._started.is_set():
            self._answer = answer
            self._started.set()

    def _fail(self, reason: str) -> None:
        self._begin(reason)
        self._inbox.fail(reason)

    def _farewell(self) -> None:
        """Let idle workers close their rewards, for a moment; the rest is killed by ``_shut``."""
        for worker in list(self._workers):
            if worker.state is State.IDLE:
                self._send(worker, encode(None))
                worker.state = State.RETIRING
            elif worker.state is not State.RETIRING:
                self._remove(worker)
        limit = time.monotonic() + _CLOSE_SECONDS
        for worker in self._workers:
            worker.due = limit
        while self._workers:
            self._turn()

    def _shut(self) -> None:
        for worker in list(self._workers):
            self._remove(worker)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self._begin("the reward pool was closed before it was ready")
