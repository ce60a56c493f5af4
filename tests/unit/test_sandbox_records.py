"""What a job, its limits and the options of a sandbox may be: refused in the host, before anything runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rlcore.api.sandbox import Job, Level, Limit, Limits, ProgramResult, SandboxOptions

NAMES = [
    "../x", "a/../../x", "/etc/passwd", "", ".", "..", "a/", "/", "a//b", "./a", "a/./b", "a\0b", "\ud800", "a/" * 2000 + "b", "n" * 256,
    b"bytes", 3,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
def test_a_bad_file_name_is_refused(name) -> None:
    with pytest.raises(ValueError, match="the job's file"):
        Job(source="", files={name: b""})


@pytest.mark.parametrize("name", ["a", "a/b/c.txt", "..a", "a..", ".hidden", "ünïcode/ß", " ", "a b", "-rf", "n" * 255, "\udc80"])
def test_a_good_file_name_is_taken(name: str) -> None:
    assert name in Job(source="", files={name: b""}).files


def test_a_file_cannot_be_a_folder_too() -> None:
    with pytest.raises(ValueError, match="is also a folder of another file"):
        Job(source="", files={"a": b"", "a/b/c": b""})


def test_contents_are_bytes() -> None:
    with pytest.raises(ValueError, match="does not hold bytes"):
        Job(source="", files={"a": "text"})
    with pytest.raises(ValueError, match="stdin"):
        Job(source="", stdin="text")
    with pytest.raises(ValueError, match="source"):
        Job(source=3)


def test_a_job_is_a_program_or_a_command() -> None:
    with pytest.raises(ValueError, match="not both"):
        Job()
    with pytest.raises(ValueError, match="not both"):
        Job(source="", argv=("/bin/true",))


@pytest.mark.parametrize(
    "argv", [("true",), ("./x",), ("",), ("/bin/echo", "a\0b"), ("/bin/echo", "\ud800"), ("/bin/echo", 3), "/bin/echo"]
)
def test_a_bad_command_is_refused(argv) -> None:
    with pytest.raises(ValueError, match="a job's argv"):
        Job(argv=argv)


@pytest.mark.parametrize("name", ["cpu_seconds", "wall_seconds", "memory_bytes", "output_bytes", "disk_bytes", "files", "processes"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, 1 << 70, "3", None, True])
def test_odd_limits_are_refused(name: str, value) -> None:
    with pytest.raises(ValueError, match=f"the limit {name} is"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["cpu_seconds", "wall_seconds", "memory_bytes", "disk_bytes", "files", "processes"])
def test_zero_is_no_limit(name: str) -> None:
    """To a file system in memory zero even means without bound."""
    with pytest.raises(ValueError, match=f"the limit {name} is 0"):
        Limits(**{name: 0})


@given(st.integers() | st.floats() | st.booleans())
def test_limits_are_taken_or_refused_in_words(value) -> None:
    if not isinstance(value, bool) and 0.01 <= value <= 86400:
        assert Limits(wall_seconds=value).wall_seconds == value
    else:
        with pytest.raises(ValueError, match="the limit wall_seconds is"):
            Limits(wall_seconds=value)


def test_a_run_is_well_only_without_a_limit() -> None:
    well = {"signal": None, "stdout": b"", "stderr": b""}
    assert ProgramResult(exit_code=0, **well).ok
    assert not ProgramResult(exit_code=1, **well).ok
    assert not ProgramResult(exit_code=None, **well).ok
    assert not ProgramResult(exit_code=0, limit=Limit.OUTPUT, **well).ok


def test_options_are_closed() -> None:
    assert SandboxOptions().level == "auto"
    assert {level.value for level in Level} == {"namespaces", "landlock", "remote", "none"}
    with pytest.raises(ValidationError):
        SandboxOptions(level="chroot")
    with pytest.raises(ValidationError):
        SandboxOptions(walls=False)
