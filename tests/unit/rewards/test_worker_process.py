"""Scripts that use the engine: no ``__main__`` guard, no close, a parent that is killed, a parent that forks."""

import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

START = """
    import os, signal, sys
    import cloudpickle
    from rlcore.rewards.judge import Judge
    from rlcore.rewards.reward_entry import RewardEntry
    from rlcore.contracts.specs import RewardSpec
    from rlcore.contracts.types import FinishReason, Message, Prompt, Rollout, Segment

    def mine(item):
        if item.text == "hang":
            signal.pause()
        return float(len(item.text))

    spec = RewardSpec(name="mine", target="script:mine", summary="a script's own")
    judge = Judge([RewardEntry(name="mine", spec=spec, payload=cloudpickle.dumps(mine))], workers=2)
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),))

    def ask(key, text):
        judge.submit(key, prompt, [Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=FinishReason.STOP)])

    def value(key):
        ask(key, "abc")
        return judge.poll(60.0)[0][1][0].value

    first = value(0)
    print(first, *(worker.pid for dispatcher in judge.pool._dispatchers for worker in list(dispatcher._workers)), flush=True)
"""


def run(folder, ending):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(START) + textwrap.dedent(ending), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=folder)
    lines = done.stdout.splitlines()
    return done, lines[0].split()[0], [int(pid) for pid in lines[0].split()[1:]], lines[1:]


def wait_gone(pids):
    for _ in range(1000):
        if not any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids):
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"still there: {pids}")


def test_a_script_without_guard_or_close(tmp_path):
    done, value, pids, _ = run(tmp_path, "")
    assert (done.returncode, done.stderr, value) == (0, "", "3.0")
    wait_gone(pids)


def test_modules_in_the_working_directory_do_not_shadow_the_library(tmp_path):
    (tmp_path / "work").mkdir()
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(START), encoding="utf-8")
    (tmp_path / "work" / "json.py").write_text("raise RuntimeError('the wrong json')", encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=tmp_path / "work")
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    """One is judging something that never ends, the other is idle."""
    done, _, pids, _ = run(tmp_path, "ask(1, 'hang'); judge.poll(0.5); os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -9
    wait_gone(pids)


def test_a_fork_of_the_parent_does_not_stop_the_workers(tmp_path):
    ending = """
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print(value(1))
    """
    done, _, pids, rest = run(tmp_path, ending)
    assert (done.returncode, rest) == (0, ["3.0"])
    wait_gone(pids)


def test_a_worker_whose_parent_died_before_it_could_ask_ends_at_once():
    """Its number is not that of the process which started it; the socket stays open, so only that can end it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = f"from rlcore.rewards.worker import main; main({theirs.fileno()}, -1, 1 << 30)"
        subprocess.run([sys.executable, "-c", program], pass_fds=[theirs.fileno()], check=True, timeout=60)


def test_judging_loads_nothing_heavy():
    program = "import sys, rlcore.rewards; assert not {'torch', 'transformers', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
