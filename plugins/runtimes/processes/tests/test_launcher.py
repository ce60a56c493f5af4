"""Workers in processes of their own: what they get, how they are called, and that nothing of them outlives them or the driver."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_processes import worker_link
from rlcore_plugin_processes.launcher import _BOOT, ProcessLauncher, ProcessWorker
from rlcore_plugin_workers.workers import Placement, Worker, WorkerDiedError

from rlcore.api import ConfigError, RunError
from tests.worker_hosts import AwkwardError, Echo, Thrower

ROOT = Path(__file__).parents[4]
SECONDS = 60


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    made = ProcessLauncher()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[ProcessWorker]:
    """A worker for the tests that leave it as it is."""
    made = ProcessLauncher()
    yield made.start(Echo, name="shared", placement=Placement(threads=3))
    made.close()


def ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie that its parent has not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def soon(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


class Local(Worker):
    """A worker of the driver's: it answers at once."""

    name = "local"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        self.calls.append((method, *arguments))
        future: Future[Any] = Future()
        if method == "cancel":
            future.cancel()
        elif method == "fail":
            future.set_exception(ConfigError("no such setting"))
        elif method == "refuse":
            raise ConfigError("not now")
        else:
            future.set_result(len(self.calls))
        return future

    def kill(self) -> None:
        raise AssertionError


# --- what a worker gets ------------------------------------------------------------------------------------------------


def test_threads_devices_and_path_are_set_before_the_host_is_imported(launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "/somewhere"])
    worker = launcher.start(Echo, name="worker", placement=Placement(threads=5, devices="2,3"))
    facts = worker.call("facts", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES").result(SECONDS)
    assert (facts["OMP_NUM_THREADS"], facts["OPENBLAS_NUM_THREADS"], facts["CUDA_VISIBLE_DEVICES"]) == ("5", "5", "2,3")
    assert facts["path"] == sys.path


@pytest.mark.interpreter
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="numpy starts no more threads than there are cores")
def test_the_threads_of_the_seat_are_set_before_numpy_is_imported(launcher: ProcessLauncher) -> None:
    one, two = (
        launcher.start(Echo, name="worker", placement=Placement(threads=threads)).call("threads").result(SECONDS) for threads in (1, 2)
    )
    assert two - one == 1


def test_it_has_a_session_of_its_own_and_an_empty_standard_input_and_its_main_thread_works(shared: ProcessWorker) -> None:
    facts = shared.call("facts").result(SECONDS)
    assert facts["pid"] == facts["session"] == shared.pid
    assert facts["main"]
    assert facts["stdin"] == ""


def test_what_it_prints_goes_to_standard_error_with_its_name(shared: ProcessWorker, capsys: pytest.CaptureFixture[str]) -> None:
    shared.call("print", "one\n10 %\r100 %\ntwo").result(SECONDS)
    found = ""

    def printed() -> bool:
        nonlocal found
        found += capsys.readouterr().err
        return "two\n" in found

    assert soon(printed)
    assert found == "shared: one\nshared: 100 %\nshared: two\n"


# --- calls -------------------------------------------------------------------------------------------------------------


def test_a_host_is_made_with_its_arguments_and_answers(launcher: ProcessLauncher) -> None:
    class Adder:  # known here only: it travels by value
        def __init__(self, start: int) -> None:
            self.sum = start

        def add(self, value: int) -> int:
            self.sum += value
            return self.sum

    worker = launcher.start(Adder, 5, name="worker", placement=Placement())
    assert [worker.call("add", value).result(SECONDS) for value in (1, 2)] == [6, 8]


def test_calls_begin_in_their_order_one_at_a_time(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement(calls=1))
    calls = [worker.call("note", number, 0.2 if number == 0 else 0.0) for number in range(20)]
    assert [len(call.result(SECONDS)) for call in calls[1:]] == list(range(2, 21))
    assert calls[-1].result() == list(range(20))


def test_as_many_calls_run_at_a_time_as_the_seat_has(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement(calls=3))
    waiting = [worker.call("wait"), worker.call("wait")]
    assert worker.call("echo", 1).result(SECONDS) == 1
    waiting.append(worker.call("wait"))
    late = worker.call("echo", 2)
    time.sleep(0.3)
    assert not late.done()
    worker.call("open", beside=True).result(SECONDS)
    assert [call.result(SECONDS) for call in (*waiting, late)] == [True, True, True, 2]


def test_a_call_beside_runs_whatever_else_runs(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    waiting = worker.call("wait")
    worker.call("open", beside=True).result(SECONDS)
    assert waiting.result(SECONDS)


def test_an_answer_cannot_be_cancelled(shared: ProcessWorker) -> None:
    call = shared.call("echo", 1)
    assert not call.cancel()
    assert call.result(SECONDS) == 1


@pytest.mark.parametrize("count", [3, 8192, 3_000_000])
@pytest.mark.parametrize("writable", [True, False])
def test_arrays_arrive_as_they_were(shared: ProcessWorker, count: int, writable: bool) -> None:
    array = np.arange(count, dtype=np.float64)
    array.flags.writeable = writable
    there, doubled = shared.call("double", array).result(SECONDS)
    assert there is writable
    np.testing.assert_array_equal(doubled, array * 2)


def test_a_large_array_is_not_copied_on_its_way_in(shared: ProcessWorker) -> None:
    large, small = np.zeros(worker_link._APART), np.zeros(3)
    found = shared.call("bases", [large, small, large]).result(SECONDS)
    assert found == [len(large) * 8, None, len(large) * 8]


def test_many_threads_may_call(shared: ProcessWorker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: shared.call("echo", number).result(SECONDS), range(400)))
    assert found == list(range(400))


# --- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_travels_as_itself_with_its_trace(shared: ProcessWorker) -> None:
    with pytest.raises(ConfigError, match=r"^no such setting$") as found:
        shared.call("fail", ConfigError, "no such setting").result(SECONDS)
    assert str(found.value.__cause__).startswith("raised in shared:\nTraceback")
    assert "worker_hosts.py" in str(found.value.__cause__)


@pytest.mark.parametrize("error", [(AwkwardError, "one", "two"), (KeyboardInterrupt,), (SystemExit, 3)])
def test_an_error_that_cannot_travel_comes_as_its_text(shared: ProcessWorker, error: tuple[Any, ...]) -> None:
    with pytest.raises(RunError, match=f"^shared: {error[0].__name__}") as found:
        shared.call("fail", *error).result(SECONDS)
    assert "Traceback" in str(found.value.__cause__)
    assert shared.call("echo", 1).result(SECONDS) == 1


def test_an_error_of_the_constructor_is_raised_by_every_call(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Thrower, "no such setting", name="worker", placement=Placement())
    for beside in (False, True, False):
        with pytest.raises(ConfigError, match=r"^no such setting$") as found:
            worker.call("echo", 1, beside=beside).result(SECONDS)
        assert "in __init__" in str(found.value.__cause__)


def test_a_value_that_cannot_be_sent_is_an_error_of_its_call(shared: ProcessWorker) -> None:
    with pytest.raises(RunError, match=r"^shared cannot send what lock\(\) returned: TypeError: "):
        shared.call("lock").result(SECONDS)


def test_a_method_that_is_not_there_is_an_error_of_its_call(shared: ProcessWorker) -> None:
    with pytest.raises(AttributeError, match="'absent'"):
        shared.call("absent").result(SECONDS)


# --- workers among the arguments ---------------------------------------------------------------------------------------


def test_a_worker_of_the_driver_can_be_called_from_there(shared: ProcessWorker) -> None:
    local = Local()
    assert [shared.call("ask", local, "lease", number, {"a": [local]}).result(SECONDS) for number in (7, 8)] == [1, 2]
    assert local.calls == [("lease", 7, {"a": [local]}), ("lease", 8, {"a": [local]})]
    assert shared.call("give_back", local).result(SECONDS) is local


@pytest.mark.parametrize(("method", "error"), [("fail", ConfigError), ("refuse", ConfigError), ("cancel", CancelledError)])
def test_what_a_worker_of_the_driver_raises_is_raised_there(shared: ProcessWorker, method: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        shared.call("ask", Local(), method).result(SECONDS)


def test_a_process_can_call_another_one_and_learns_of_its_death(launcher: ProcessLauncher, shared: ProcessWorker) -> None:
    other = launcher.start(Echo, name="other", placement=Placement())
    assert shared.call("ask", other, "echo", 3).result(SECONDS) == 3
    assert shared.call("ask", shared, "echo", 3, beside=True).exception(SECONDS) is None
    other.kill()
    with pytest.raises(WorkerDiedError, match=r"^the process of other died \(killed by signal 9") as found:
        shared.call("ask", other, "echo", 3).result(SECONDS)
    assert found.value.name == "other"


def test_only_the_driver_kills(shared: ProcessWorker) -> None:
    with pytest.raises(RunError, match=r"^local was started by the driver, and only the driver can end it$"):
        shared.call("kill_it", Local()).result(SECONDS)


# --- death -------------------------------------------------------------------------------------------------------------


def test_a_process_that_is_killed_fails_its_calls_at_once_and_all_later_ones(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    worker.call("echo", 1).result(SECONDS)
    calls = [worker.call("wait"), worker.call("echo", 1)]
    started = time.monotonic()
    os.kill(worker.pid, signal.SIGKILL)
    for call in (*calls, worker.call("echo", 2)):
        with pytest.raises(
            WorkerDiedError, match=r"^the process of worker died \(killed by signal 9 \(Killed; .* memory runs out\)\)$"
        ) as found:
            call.result(SECONDS)
        assert found.value.name == "worker"
    assert time.monotonic() - started < 10
    assert worker.call("echo", 3).done()


def test_a_process_that_ends_says_its_exit_code_and_its_last_line(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    with pytest.raises(WorkerDiedError, match=r"^the process of worker died \(exit code 3\)$") as found:
        worker.call("exit", 3, "a reason").result(SECONDS)
    assert found.value.details == "exit code 3, its last line: a reason"


def test_a_process_that_others_have_reaped_fails_its_calls_too(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    worker.call("echo", 1).result(SECONDS)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    try:
        os.kill(worker.pid, signal.SIGKILL)
        assert isinstance(worker.call("echo", 2).exception(SECONDS), WorkerDiedError)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_what_it_answered_before_it_ended_arrives(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    big, end = worker.call("echo", np.ones(1_000_000)), worker.call("exit", 0, "")
    assert end.exception(SECONDS) is not None
    assert big.result(0).sum() == 1_000_000


def test_a_stopped_process_is_killed_and_stops_nobody_before(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    worker.call("echo", 1).result(SECONDS)
    os.kill(worker.pid, signal.SIGSTOP)
    calls = [worker.call("echo", np.ones(1_000_000)) for _ in range(5)]
    assert not any(call.done() for call in calls)
    worker.kill()
    assert all(isinstance(call.exception(0), WorkerDiedError) for call in calls)
    assert ended(worker.pid)


KINDS = ("group", "bare", "session", "orphan")


@pytest.mark.parametrize("how", ["kill", "signal", "close"])
def test_its_children_end_with_it(launcher: ProcessLauncher, how: str) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    children = worker.call("children", KINDS).result(SECONDS)
    assert not any(map(ended, children))
    waiting = worker.call("wait")
    if how == "signal":
        os.kill(worker.pid, signal.SIGKILL)
        assert isinstance(waiting.exception(SECONDS), WorkerDiedError)
    elif how == "kill":
        worker.kill()
    else:
        launcher.close()
    assert all(map(ended, (worker.pid, *children)))
    worker.kill()


def test_a_descendant_that_holds_its_socket_and_cannot_be_found_delays_nothing_for_long(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    stray = worker.call("fork").result(SECONDS)
    try:
        started = time.monotonic()
        os.kill(worker.pid, signal.SIGKILL)
        assert isinstance(worker.call("echo", 1).exception(SECONDS), WorkerDiedError)
        assert time.monotonic() - started < 10
    finally:
        os.kill(stray, signal.SIGKILL)


DRIVER = """
import sys, threading, time
from rlcore_plugin_workers.workers import Placement
from rlcore_plugin_processes.launcher import ProcessLauncher
from tests.worker_hosts import Echo

launcher = ProcessLauncher()
def start():
    worker = launcher.start(Echo, name="worker", placement=Placement())
    children = worker.call("children", ["group"]).result()
    print(worker.pid, *children, flush=True)
    return worker

if sys.argv[1] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(600)
worker = start()
if sys.argv[1] == "hold":
    worker.call("hold_interpreter")
if sys.argv[1] != "returns":
    time.sleep(600)
"""


def driver(how: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A driver, and the processes under it: the worker and its child."""
    started = subprocess.Popen([sys.executable, "-c", DRIVER, how], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True)
    assert started.stdout is not None
    return started, [int(pid) for pid in started.stdout.readline().split()]


@pytest.mark.parametrize("how", ["killed", "hold", "returns"])
def test_the_driver_s_end_ends_its_workers_and_their_children(how: str) -> None:
    started, pids = driver(how)
    with started:
        assert len(pids) == 2
        if how != "returns":
            time.sleep(0.5 if how == "hold" else 0.0)
            assert not any(map(ended, pids))
            started.kill()
        started.wait(SECONDS)
    assert soon(lambda: all(map(ended, pids)))


def test_a_closed_socket_ends_a_worker_that_has_no_guard() -> None:
    ours, theirs = socket.socketpair()
    program = f"from rlcore_plugin_processes.worker_link import serve; serve({theirs.fileno()}, 'worker', 1)"
    with theirs, ours, subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()], start_new_session=True) as worker:
        theirs.close()
        ours.close()
        try:
            assert worker.wait(20) == -signal.SIGKILL
        finally:
            worker.kill()


def test_a_worker_whose_driver_died_while_it_was_started_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        given = {"driver": other.pid, "path": sys.path, "descriptor": 0, "name": "worker", "calls": 1}
        words = [sys.executable, "-c", _BOOT, json.dumps(given)]
        done = subprocess.run(words, timeout=20, stderr=subprocess.PIPE, start_new_session=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    started, pids = driver("thread")
    with started:
        time.sleep(0.5)
        alive = not any(map(ended, pids))
        started.kill()
    assert alive
    assert soon(lambda: all(map(ended, pids)))


def test_an_interrupt_of_the_driver_s_group_does_not_reach_it(launcher: ProcessLauncher) -> None:
    worker = launcher.start(Echo, name="worker", placement=Placement())
    assert os.getpgid(worker.pid) != os.getpgid(0)


def test_a_machine_without_room_for_a_process_is_an_error_of_the_run(launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: Any, **named: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(RunError, match=r"^worker could not be started: .*Resource temporarily unavailable"):
        launcher.start(Echo, name="worker", placement=Placement())
