"""`make gpu-wheels`: fetch the pinned wheels that a GPU machine without network lacks, and refuse a folder that is not what it says."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.refused import Refused
from benchmarks.gpu.setting import REPOSITORY

__all__ = ["LIST", "check", "pinned"]

LIST = Path(__file__).with_name("wheels.txt")
WHEELS = REPOSITORY / ".gpu" / "wheels"
MOST_BYTES = 60_000_000
_NEVER = re.compile(r"^(torch|torchvision|torchaudio|triton|nvidia[-_].*|cuda[-_].*)$")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")


def main() -> None:
    """The command: one JSON line, or one sentence and exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=WHEELS, help="where they go (.gpu/wheels)")
    folder: Path = parser.parse_args().folder
    try:
        wanted = pinned(LIST.read_text(encoding="utf-8"))
        size = _fill(folder.resolve(), wanted)
    except Refused as refusal:
        print(f"make gpu-wheels: {refusal}", file=sys.stderr)
        raise SystemExit(2) from refusal
    print(json.dumps({"folder": str(folder), "wheels": len(wanted), "megabytes": round(size / 1e6, 1)}))


def _fill(folder: Path, wanted: dict[str, str]) -> int:
    """Fetch into a folder aside, check, then put it in the place of ``folder``; bytes of the wheels. Refused if ``folder`` holds anything
    but wheels, which would be lost, or cannot be written."""
    try:
        if folder.exists() and any(path.suffix != ".whl" for path in folder.iterdir()):
            raise Refused(f"--folder {folder} holds other things than wheels, and its content is replaced; name a new folder")
        aside = folder.with_name(f".{folder.name}.fetching")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir(parents=True)
            _fetch(wanted, aside)
            size = check(aside, wanted)
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise Refused(f"--folder {folder} cannot be written ({error.strerror}); name a folder that can be") from error
    return size


def pinned(text: str) -> dict[str, str]:
    """Name -> version of a list; Refused for a line that pins nothing, and for torch and what comes with it."""
    wanted: dict[str, str] = {}
    for line in text.splitlines():
        if not (words := line.split("#")[0].strip()):
            continue
        name, pin, version = words.partition("==")
        if not pin or not version:
            raise Refused(f"{LIST.name} names {words!r} without a version; write {name}==VERSION")
        _refuse_torch(name)
        wanted[_canonical(name)] = version
    return wanted


def check(folder: Path, wanted: dict[str, str]) -> int:
    """Bytes of the wheels; Refused where they are not exactly the wanted ones, hold torch, or are more than 60 MB."""
    found: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        name, version, *_ = path.name.split("-")
        _refuse_torch(_canonical(name))
        found[_canonical(name)] = version
    if found != wanted:
        wrong = sorted(set(found.items()) ^ set(wanted.items()))[0]
        raise Refused(f"{wrong[0]} {wrong[1]} is in only one of the folder and {LIST.name}; the folder must hold exactly the list")
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > MOST_BYTES:
        raise Refused(f"the wheels have {size / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} MB may travel; take one off {LIST.name}")
    return size


def _fetch(wanted: dict[str, str], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "none", "--dest", str(folder)]
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    _run([*command, *platforms, *(f"{name}=={version}" for name, version in wanted.items())])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Refused(f"pip could not fetch them: {(errors or ['no reason given'])[-1]}")


def _refuse_torch(name: str) -> None:
    if _NEVER.match(_canonical(name)):
        raise Refused(f"{name} belongs to the machine's own torch and is never brought along; take it off {LIST.name}")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
