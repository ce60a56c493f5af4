"""What stands in an sbatch file: a header of checked words, quoted variables, bash that a linter accepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_ray.launch import Machines, Packages, SlurmJob, check_time_limit, sbatch_text

from rlcore.api import UsageError

NASTY = ["", " ", "it's", '"', "$HOME", "`id`", "$(id)", "a\nb", "\\", "!x", "#", "-x", "*", "é", ";rm -rf /", "'\n#SBATCH --nodes=99\n'"]


def made(**changes: object) -> SlurmJob:
    values: dict[str, object] = {
        "project": "demo",
        "folder": "/shared/demo",
        "train": ["run.toml", "-t", "4"],
        "machines": Machines(nodes=2, gpus=4, cpus=32),
        "packages": Packages(versions=("rlcore-plugin-x==1.0",), files=("rewards/mine.py",), extra=("more>=2",)),
    }
    return SlurmJob(**{**values, **changes})  # type: ignore[arg-type]


def header(text: str) -> list[str]:
    """What Slurm reads: the directives before the first command."""
    lines = text.splitlines()
    first = next(place for place, line in enumerate(lines) if line and not line.startswith("#"))
    return [line for line in lines[:first] if line.startswith("#SBATCH")]


def test_the_header_asks_for_what_the_job_needs() -> None:
    assert header(sbatch_text(made(partition="gpu", account="lab-7", time="1-00:00:00"))) == [
        "#SBATCH --job-name=rlcore-demo",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=32",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --time=1-00:00:00",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=lab-7",
        "#SBATCH --output=%x-%j.out",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:TERM@120",
        "#SBATCH --requeue",
    ]


def test_nodes_without_gpus_and_defaults_of_slurm_are_not_asked_for() -> None:
    text = sbatch_text(made(machines=Machines(nodes=1, gpus=0, cpus=8)))
    assert not any(word in line for line in header(text) for word in ("gpus", "partition", "account"))


@pytest.mark.parametrize(("project", "name"), [("a b", "a-b"), ("é/..", "rlcore-"), ("$(id)\n#SBATCH", "id-SBATCH")])
def test_a_project_becomes_one_word_of_the_header(project: str, name: str) -> None:
    (line,) = (line for line in header(sbatch_text(made(project=project))) if "job-name" in line)
    assert name in line
    assert " " not in line.removeprefix("#SBATCH ")


@given(st.lists(st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))), min_size=6))
def test_whatever_was_typed_reaches_bash_as_it_was(words: list[str]) -> None:
    folder, venv, container, ray_dir, wheels, *train = words
    packages = Packages(versions=tuple(train), files=(folder,), extra=tuple(train))
    typed = {"folder": folder, "venv": venv, "container": container, "ray_dir": ray_dir, "wheels": wheels}
    text = sbatch_text(made(**typed, train=train, packages=packages))
    assert header(text) == header(sbatch_text(made()))
    variables = text[: text.index("set -eo pipefail")]
    show = r"""printf '%s\0' "$folder" "$venv" "$container" "$ray_dir" "$wheels" "${train[@]}" "${versions[@]}" "${packages[@]}" "end" """
    done = subprocess.run(["bash", "-c", variables + show], capture_output=True, check=True)
    installed = [] if container else train
    assert done.stdout.decode().split("\0")[:-1] == [*typed.values(), *train, *installed, *installed, "end"]


def test_an_image_holds_its_plugins_and_installs_none() -> None:
    text = sbatch_text(made(container="image.sif"))
    assert "versions=()" in text
    assert "packages=()" in text


def test_unpackaged_files_are_named() -> None:
    assert "# Every node must find this file too: 'rewards/mine.py'" in sbatch_text(made())


def test_a_requeued_job_goes_on_and_the_file_says_so() -> None:
    text = sbatch_text(made())
    assert 'rlcore train "${train[@]}" --resume auto --runtime ray' in text
    assert "--resume auto finds the newest run of the same settings" in text


@pytest.mark.parametrize("flag", ["partition", "account"])
@pytest.mark.parametrize("word", ["a b", "a;b", "$x", "-x", "a\n#SBATCH --nodes=9", "é"])
def test_words_of_the_header_are_refused_where_slurm_would_misread_them(flag: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag} .* must be one word"):
        made(**{flag: word})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4", 240), ("90", 5400), ("5:30", 330), ("12:00:00", 43200), ("2-0", 172800), ("1-2:30", 95400), ("1-00:00:01", 86401)],
)
def test_time_limits_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert check_time_limit(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1-", "12h", "12:00:00 ", "UNLIMITED", "٣٠"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="type --time 12:00:00"):
        check_time_limit(text)


def test_a_job_that_would_be_told_to_end_at_once_is_refused() -> None:
    check_time_limit("4:00")
    with pytest.raises(UsageError, match=r"--time 3:59 is 239 s, and Slurm tells a job to save 120 s before its end"):
        check_time_limit("3:59")


def variants() -> list[SlurmJob]:
    return [made(), made(container="/images/rl core.sif", machines=Machines(nodes=1, gpus=0, cpus=8)), made(train=NASTY, folder="a\nb")]


@pytest.mark.parametrize("job", variants(), ids=["plain", "container", "nasty"])
def test_bash_parses_it(job: SlurmJob) -> None:
    subprocess.run(["bash", "-n"], input=sbatch_text(job), text=True, check=True)


@pytest.mark.parametrize("job", variants()[:2], ids=["plain", "container"])
def test_shellcheck_has_no_objection(job: SlurmJob, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(sbatch_text(job))
    shellcheck = Path(sys.executable).with_name("shellcheck")  # of the extra dev; a virtual environment's folder is not on the path
    done = subprocess.run([shellcheck, "--shell=bash", "job.sbatch"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
