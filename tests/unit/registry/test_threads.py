"""Numbers of threads: a share of the cores without OMP_NUM_THREADS, what it says with it; torch and environment are put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlcore.host import threads
from rlcore.host.threads import limit_threads, thread_variables, threads_limited, threads_of
from rlcore.testing import RunTester

_NAMES = tuple(thread_variables(1))


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _NAMES:
        monkeypatch.setenv(name, "")  # so that what limit_threads sets is taken back
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("cores", "roles", "expected"), [(2, 2, 1), (16, 2, 8), (16, 5, 3), (2, 8, 1)])
def test_each_role_has_an_equal_part_of_the_cores_and_at_least_one(
    cores: int, roles: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: cores)
    assert threads_of(roles) == expected


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("4,2", 4), ("", 8), ("0", 8), ("many", 8)])
def test_a_number_in_the_environment_is_kept(given: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 16)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads_of(2) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "350000 100000"}, 3),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "6400000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "300000"}, 8),
    ],
)
def test_no_more_cores_are_counted_than_a_container_has_the_time_of(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert threads.cores(tmp_path) == expected


def test_a_torch_that_is_imported_is_limited_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [7]
    torch = SimpleNamespace(get_num_threads=lambda: counts[-1], set_num_threads=counts.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("MKL_NUM_THREADS", "9")
    with threads_limited(3):
        assert counts == [7, 3]
        assert {name: os.environ[name] for name in _NAMES} == thread_variables(3)
    assert counts == [7, 3, 7]
    assert {name: os.environ.get(name) for name in _NAMES} == {**dict.fromkeys(_NAMES), "MKL_NUM_THREADS": "9"}
    limit_threads(2)
    assert os.environ["RAYON_NUM_THREADS"] == "2"
    assert counts[-1] == 2


_MODULE = """
import os
from rlcore.api import Tracker

NAMES = {names!r}

class Shown(Tracker):
    def open(self, run):
        print(*(os.environ.get(name) for name in NAMES))

    def log(self, record):
        pass

def reward(item):
    with open("reward.threads", "w") as file:
        print(*(os.environ.get(name) for name in NAMES), file=file)
    return 1.0
"""


def test_a_local_run_and_its_rewards_have_their_threads_set_whatever_the_environment(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.write("mine.py", _MODULE.format(names=_NAMES))
    sixteen = "import rlcore.host.threads; rlcore.host.threads.cores = lambda: 16"
    program = f"{sixteen}; import mine; rlcore.train({tester.fake_run()!r}, reward=mine.reward, trackers=mine.Shown, reward_workers=1)"
    environment = {name: value for name, value in tester.plugins.environment.items() if name not in _NAMES}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(thread_variables(8).values())
    assert (tmp_path / "reward.threads").read_text().split() == list(thread_variables(1).values())


def test_a_worker_of_another_process_has_its_threads_set_when_it_opens_its_plan(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    program = f"""
import os
import rlcore.host.threads
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore.testing import make_plan
rlcore.host.threads.cores = lambda: 12
PlanBundle.of(make_plan({tester.fake_run()!r}, num_inferencer=3), {{}}).open("producer-0")
print(*(os.environ.get(name) for name in {_NAMES!r}))
"""
    environment = {name: value for name, value in tester.plugins.environment.items() if name not in _NAMES}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(thread_variables(3).values())
