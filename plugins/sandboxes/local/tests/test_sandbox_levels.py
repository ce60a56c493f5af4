"""Which sandbox is opened, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit_sandbox import opened, run
from rlcore_plugin_sandbox import bubblewrap, isolation_probe, local_sandbox
from rlcore_plugin_sandbox.jail import landlock

from rlcore.api import SandboxError
from rlcore.api.sandbox import Level, SandboxOptions, open_sandbox
from tests import levels
from tests.levels import need


def no_bubblewrap(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_level_says_what_gives_it(box) -> None:
    words = {"namespaces": "bubblewrap", "landlock": "Landlock ABI"}
    assert box.describe().startswith(f"{box.level} ({words[box.level]}")


def test_without_bubblewrap_landlock_is_taken_and_says_why(monkeypatch, tmp_path) -> None:
    need("landlock")
    no_bubblewrap(monkeypatch, tmp_path)
    with open_sandbox() as sandbox:
        assert sandbox.level is Level.LANDLOCK
        assert "bubblewrap is not installed" in sandbox.describe()
        assert run(sandbox, "print(1)").stdout == b"1\n"


def test_a_level_that_is_asked_for_is_not_replaced(monkeypatch, tmp_path) -> None:
    no_bubblewrap(monkeypatch, tmp_path)
    with pytest.raises(SandboxError, match=r"bubblewrap is not installed.*apt install bubblewrap"):
        open_sandbox(SandboxOptions(level="namespaces"))


def test_with_neither_it_says_what_to_type_and_never_takes_none(monkeypatch, tmp_path) -> None:
    no_bubblewrap(monkeypatch, tmp_path)
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(SandboxError) as caught:
        open_sandbox()
    for word in ("bubblewrap is not installed", "this kernel does not have it", "apt install bubblewrap", 'sandbox.level = "none"'):
        assert word in str(caught.value)


def test_bubblewrap_that_fails_is_a_reason(monkeypatch, tmp_path) -> None:
    need("landlock")
    fake = tmp_path / "bwrap"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.0 && exit\necho "bwrap: No permissions to create new namespace" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with open_sandbox() as sandbox:
        assert sandbox.level is Level.LANDLOCK
        assert "No permissions to create new namespace" in sandbox.describe()


@pytest.mark.parametrize(("platform", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_other_machines_are_refused(monkeypatch, platform: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(local_sandbox, "machine", lambda: machine)
    with pytest.raises(SandboxError, match=f"only on Linux .*, and this is {platform} on {machine}.*sandbox.backend"):
        open_sandbox()


def test_none_is_only_what_was_asked_for() -> None:
    with open_sandbox(SandboxOptions(level="none")) as sandbox:
        assert sandbox.level is Level.NONE
        assert "NO WALLS" in sandbox.describe()
        assert run(sandbox, "import os; print(os.path.exists('/etc/passwd'))").stdout == b"True\n"


def test_a_level_whose_walls_do_not_hold_is_not_offered() -> None:
    """The probe's program, run where there are no walls, names every gap."""
    with open_sandbox(SandboxOptions(level="none")) as sandbox:
        sandbox.level = Level.LANDLOCK
        found = isolation_probe.probe(sandbox)
    assert found is not None
    for gap in ("can be read", "can be written", "network can be reached"):
        assert gap in found
    if os.getuid() == 0:
        assert "namespaces can be made" in found


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_readable_folder_can_be_read_and_not_written(level: str, host) -> None:
    folder = Path(host.given["folder"])
    (folder / "data").write_text("here")
    program = f"""
import ctypes, os
fd = ctypes.CDLL(None).open(b"{folder}/data", 0)
print(os.read(fd, 9).decode())
print(ctypes.CDLL(None).open(b"{folder}/data", 1), ctypes.CDLL(None).open(b"{folder}/new", 65, 0o600))
"""
    with opened(level, readable=(str(folder),)) as sandbox:
        assert run(sandbox, program).stdout == b"here\n-1 -1\n"
    with opened(level) as sandbox:
        assert run(sandbox, program).exit_code != 0


def test_a_readable_folder_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(SandboxError, match=r"sandbox\.readable names .*nowhere"):
        open_sandbox(SandboxOptions(readable=(str(tmp_path / "nowhere"),)))


@pytest.mark.parametrize("path", ["/", "/tmp", "/proc", "/dev", "/sys/kernel"])
def test_what_no_program_may_see_is_no_readable_folder(path: str) -> None:
    """A folder below /tmp would be hidden by the program's own."""
    with pytest.raises(SandboxError, match=r"sandbox\.readable names .* programs cannot see .*; move the folder elsewhere"):
        open_sandbox(SandboxOptions(readable=(path,)))


@pytest.mark.parametrize(
    ("must", "ends", "words"),
    [
        ("", "skip", "no level namespaces here: nothing to make it of"),
        ("landlock", "skip", "no level namespaces here"),
        ("landlock namespaces", "fail", "RLCORE_TEST_LEVELS asks for level namespaces, which cannot be had: nothing to make it of"),
        ("namespace", "fail", "RLCORE_TEST_LEVELS names namespace; the levels are namespaces and landlock"),
    ],
)
def test_tests_of_a_missing_level_skip_or_fail_where_it_must_be_there(monkeypatch, must: str, ends: str, words: str) -> None:
    monkeypatch.setattr(levels, "missing", lambda _: "nothing to make it of")
    monkeypatch.setenv("RLCORE_TEST_LEVELS", must)
    with pytest.raises({"skip": pytest.skip.Exception, "fail": pytest.fail.Exception}[ends], match=words):
        need("namespaces")


def test_tests_of_a_level_that_is_refused_do_not_skip(monkeypatch) -> None:
    """A probe that finds a hole, or breaks, must not turn every test of the level green."""
    need("landlock")
    monkeypatch.setattr(local_sandbox, "probe", lambda _: "landlock: a wall does not hold")
    with pytest.raises(SandboxError, match="a wall does not hold"):
        opened("landlock")


def test_root_becomes_somebody_else() -> None:
    ways = bubblewrap.jail_users()
    if os.getuid() == 0:
        assert (ways[0].uid, ways[0].gid) == (65534, 65534)
    else:
        assert [(way.uid, way.gid) for way in ways] == [(os.getuid(), os.getgid())]


IN_GROUPS = """
import subprocess
import sys
from rlcore.api.sandbox import Job, SandboxOptions, open_sandbox
with open_sandbox(SandboxOptions(level="namespaces", readable=(sys.argv[1],))) as sandbox:
    print(sandbox.run(Job(source=f"import os; print(os.getgroups(), open({sys.argv[1]!r} + '/group').read())")))
"""


def test_programs_do_not_keep_the_groups_of_root(host) -> None:
    if os.getuid() != 0:
        pytest.skip("only root becomes somebody else")
    need("namespaces")
    path = Path(host.given["folder"], "group")
    path.write_text("s3cr3t")
    path.chmod(0o640)
    said = subprocess.run([sys.executable, "-c", IN_GROUPS, str(path.parent)], extra_groups=[0, 4], capture_output=True, text=True).stdout
    assert "Permission denied" in said
    assert "s3cr3t" not in said


OLDER = """
import ctypes, os, sys
from rlcore_plugin_sandbox.jail import landlock, seccomp
landlock.abi = lambda: int(sys.argv[1])
secret, own, shown = sys.argv[2:]
rules = landlock.rules(readable=["/usr/lib", shown], listed=[], files=["/dev/null"], own=own)
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
landlock.restrict(rules)
seccomp.install(seccomp.bpf(landlock=True, pid=os.getpid()))
os.chdir(own)
open("made", "w").close(); os.mkdir("sub"); os.symlink("/", "link"); open("/dev/null", "w").close(); os.listdir("/usr/lib")
def refused(function, *arguments):
    try: function(*arguments)
    except OSError: return
    print("HOLE", arguments)
refused(open, secret); refused(open, secret, "a"); refused(os.open, secret, os.O_TRUNC); refused(os.truncate, secret, 0)
refused(os.link, secret, "hard"); refused(os.rename, secret, "mine"); refused(os.unlink, secret)
refused(os.listdir, os.path.dirname(secret))
refused(os.rename, "made", secret); refused(os.mkdir, secret + ".d"); refused(os.mkfifo, "fifo"); refused(os.fork)
refused(os.open, shown + "/file", os.O_TRUNC); refused(os.open, shown + "/file", os.O_WRONLY); open(shown + "/file").close()
print("END")
"""


@pytest.mark.parametrize("abi", range(1, 8))
def test_landlock_of_older_kernels_holds(host, tmp_path, abi: int) -> None:
    """Rules as each version of Landlock knows them, with the filter: what one lacks, the other has."""
    if abi > landlock.abi():
        pytest.skip(f"this kernel knows Landlock up to version {landlock.abi()}")
    own, shown = tmp_path / "own", tmp_path / "shown"
    for folder in (own, shown):
        folder.mkdir()
    (shown / "file").write_text("shown")
    words = [sys.executable, "-c", OLDER, str(abi), host.given["secret"], str(own), str(shown)]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.stdout == "END\n", ran
    assert (shown / "file").read_text() == "shown"
    assert Path(host.given["secret"]).read_text() == "s3cr3t"
