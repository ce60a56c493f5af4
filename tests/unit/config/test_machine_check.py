"""What this machine lacks for a plan is told before anything starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rlcore_plugin_tools import machine_check as devices_check

from rlcore.config import Plan, machine_check
from rlcore.contracts.errors import ConfigError
from rlcore.host import devices
from rlcore.testing import RunTester


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


@pytest.mark.parametrize(
    ("files", "visible", "count"),
    [
        ((), None, 0),
        (("nvidiactl", "nvidia-uvm"), None, 0),
        (("nvidiactl", "nvidia0", "nvidia1"), None, 2),
        (("nvidia0", "nvidia1"), "", 0),
        (("nvidia0", "nvidia1"), "-1", 0),
        (("nvidia0", "nvidia1"), "1", 1),
        (("nvidia0",), "0,1,2", 1),
        (("dxg",), None, None),
        (("kfd",), None, None),
    ],
)
def test_device_files_and_the_environment_bound_the_devices_of_a_process(
    files: tuple[str, ...], visible: str | None, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.cuda_devices(tmp_path) == count


@pytest.mark.parametrize(
    ("device", "count", "said"),
    [
        ("auto", 0, ""),
        ("cpu", 0, ""),
        ("warp", 0, ""),
        ("cuda", None, ""),
        ("cuda:7", None, ""),
        ("cuda", 2, ""),
        ("cuda:1", 2, ""),
        ("cuda", 0, "this machine has no CUDA device"),
        ("cuda:0", 0, "this machine has no CUDA device"),
        ("cuda:2", 2, "this machine has 2 CUDA devices, the last is cuda:1"),
    ],
)
def test_a_device_is_lacking_only_if_that_is_sure(device: str, count: int | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_check, "cuda_devices", lambda: count)
    assert devices_check._lacking_device(device) == said


@pytest.mark.parametrize(
    ("flag", "setting"),
    [("--run-dir", "--run-dir"), ("-sd", "--save-dir"), ("-esd", "--eval-save-dir"), ("-rsd", "--rollout-save-dir")],
)
@pytest.mark.parametrize("dry", [True, False])
def test_a_folder_below_a_file_is_refused_before_anything_starts(flag: str, setting: str, dry: bool, tester: RunTester) -> None:
    run, taken = tester.fake_run(), tester.write("taken", "")
    for typed in {flag, setting}:
        done = tester.run("train", run, typed, "taken/deep/er", *["--dry-run"] * dry)
        done.assert_refused(f"{typed} taken/deep/er: the folder cannot be created, because taken is a file; name another one with {flag}")
    assert taken.read_text() == ""


def test_a_folder_that_nobody_may_write_is_refused(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder may be written, so the answer of the system is replaced: a read-only mount gives the same."""
    run = tester.fake_run()
    (tester.folder / "closed").mkdir()
    monkeypatch.setattr(machine_check.os, "access", lambda path, mode: mode == machine_check.os.F_OK and Path(path).exists())
    tester.run("train", run, "--run-dir", "closed/runs", "--dry-run").assert_refused(
        "--run-dir closed/runs: closed cannot be written; name another folder with --run-dir"
    )


def test_a_folder_that_is_there_or_can_be_made_is_left_alone(tester: RunTester) -> None:
    run = tester.fake_run()
    (tester.folder / "here").mkdir()
    for folder in ("here", "here/there/and/deeper", str(tester.folder / "absolute")):
        assert not tester.run("train", run, "--run-dir", folder, "-sd", folder, "--dry-run").assert_ok().written
    assert not (tester.folder / "absolute").exists()


@pytest.mark.parametrize("dry", [True, False])
def test_a_folder_below_a_link_to_nothing_is_refused_before_anything_starts(dry: bool, tester: RunTester) -> None:
    run, link = tester.fake_run(), tester.write("taken", "").with_name("link")
    link.symlink_to(link.with_name("absent"))
    done = tester.run("train", run, "--run-dir", "link/deep", *["--dry-run"] * dry)
    done.assert_refused("--run-dir link/deep: the folder cannot be created, because link is a broken link; name another one with --run-dir")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the kernel of Linux shows itself as folders")
def test_a_file_system_of_the_kernel_takes_no_folder_and_one_of_a_network_that_tells_no_size_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine_check._refusal(Path("/proc"))
    assert machine_check._refusal(tmp_path) == ""
    monkeypatch.setattr("os.statvfs", lambda place: SimpleNamespace(f_blocks=0))
    assert machine_check._refusal(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_what_a_plugin_refuses_is_said_in_its_words(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Plan) -> list[str]:
        raise ConfigError("this machine is too small")

    monkeypatch.setattr(devices_check, "check_machine", refuse)
    done = tester.run("train", tester.fake_run(), "--dry-run")
    done.assert_refused("error: this machine is too small")
    assert "raised" not in done.stderr
