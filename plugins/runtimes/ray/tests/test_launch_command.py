"""``rlcore launch slurm``: what it writes, what it refuses, what it hands to sbatch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from rlcore_plugin_ray.node_placement import Node, RoleNeeds, place

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM

RLCORE = version("rlcore")


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    return tester


def variables(text: str, *names: str) -> list[str]:
    """Bash's own reading of the file's variables; an array gives its words, quoted."""
    show = "; ".join(f'echo "${{{name}[*]@Q}}"' for name in names)
    head = text[: text.index("set -eo pipefail")]
    done = subprocess.run(["bash", "-c", f"{head}\n{show}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_it_writes_a_file_beside_the_run_and_says_how_to_submit_it(tester: RunTester) -> None:
    done = tester.run("launch", "slurm", "run.toml", "-t", "4", "-i", "4", "--nodes", "2").assert_ok()
    assert done.written == (Path("run.sbatch"),)
    assert done.lines == ["run.sbatch: 2 x 4 GPUs and 32 cores, at most 12:00:00", "submit it with: sbatch run.sbatch"]
    text = (tester.folder / "run.sbatch").read_text()
    assert "#SBATCH --gpus-per-node=4\n" in text
    assert "--runtime ray --master_address" in text


def test_a_dry_run_prints_the_same_and_writes_nothing(tester: RunTester) -> None:
    printed = tester.run("launch", "slurm", "run.toml", "--dry-run").assert_ok()
    assert not printed.written
    tester.run("launch", "slurm", "run.toml", "--out", "other.sbatch").assert_ok()
    assert (tester.folder / "other.sbatch").read_text() == printed.stdout


def test_files_and_flags_stand_as_they_were_typed(tester: RunTester) -> None:
    typed = ["-t", "2", "-s", "it's $HOME\nand more", "--no-shuffle", "--betas", "0.9", "0.99", "-ed", "{}", "--entropy-coeff", "-0.5"]
    text = tester.run("launch", "slurm", "run.toml", *typed, "--runtime", "ray", "--dry-run").assert_ok().stdout
    shown = subprocess.run(
        ["bash", "-c", text[: text.index("set -eo")] + '\nprintf "%s\\0" "${train[@]}"'], capture_output=True, check=True
    )
    expected = [*typed[:-2], "--entropy-coeff=-0.5"]
    assert shown.stdout.decode().split("\0")[:-1] == ["run.toml", *expected], "--runtime ray is written once, at the end"


def test_the_words_plan_the_same_run(tester: RunTester) -> None:
    typed = ["-t", "2", "--no-shuffle", "--betas", "0.9", "0.99", "--entropy-coeff", "-0.5"]
    text = tester.run("launch", "slurm", "run.toml", *typed, "--dry-run").assert_ok().stdout
    shown = subprocess.run(
        ["bash", "-c", text[: text.index("set -eo")] + '\nprintf "%s\\0" "${train[@]}"'], capture_output=True, check=True
    )
    again = tester.run("train", *shown.stdout.decode().split("\0")[:-1], "--dry-run", "--json").assert_ok().json
    assert again == tester.run("train", "run.toml", *typed, "--dry-run", "--json").assert_ok().json


def test_plugins_stand_at_the_versions_that_are_attested_here(tester: RunTester) -> None:
    text = tester.run("launch", "slurm", "run.toml", "--plugin", "my-plugin>=2", "./wheels/x.whl", "--dry-run").assert_ok().stdout
    assert variables(text, "versions", "packages", "wheels") == [
        f"'rlcore=={RLCORE}' 'rlcore-plugin-ray=={version('rlcore-plugin-ray')}' 'rlcore-plugin-fakes==1.0'",
        "'my-plugin>=2' './wheels/x.whl'",
        "''",
    ]


def test_wheels_are_found_from_where_they_were_typed(tester: RunTester) -> None:
    tester.write(f"my wheels/rlcore-{RLCORE}-py3-none-any.whl", "")
    text = tester.run("launch", "slurm", "run.toml", "--wheels", "my wheels", "--dry-run").assert_ok().stdout
    assert variables(text, "wheels") == [f"'{tester.folder / 'my wheels'}'"]


def test_a_folder_without_this_rlcore_is_refused_and_nothing_is_written(tester: RunTester) -> None:
    tester.write("wheels/rlcore-0.0.1-py3-none-any.whl", "")
    tester.write("wheels/rlcore_plugin_math-0.1.0-py3-none-any.whl", "")
    refused = tester.run("launch", "slurm", "run.toml", "--wheels", "wheels")
    refused.assert_refused(f"--wheels wheels has no wheel of rlcore {RLCORE}; type make wheels in a checkout of rlcore")
    assert not refused.written


def test_an_unpackaged_reward_is_named_and_not_installed(tester: RunTester) -> None:
    tester.write("mine.py", "def score(text):\n    return 1.0\n")
    text = tester.run("launch", "slurm", "run.toml", "-rt", "./mine.py:score", "--dry-run").assert_ok().stdout
    assert "mine.py" in next(line for line in text.splitlines() if line.startswith("# Every node must find"))
    assert not any("mine" in line for line in variables(text, "versions", "packages"))


def test_the_environment_is_the_one_that_rlcore_runs_in_or_the_one_that_is_named(tester: RunTester) -> None:
    own = sys.prefix if sys.prefix != sys.base_prefix else ""
    assert variables(tester.run("launch", "slurm", "run.toml", "--dry-run").stdout, "venv") == [f"'{own}'"]
    (tester.folder / "env" / "bin").mkdir(parents=True)
    (tester.folder / "env" / "bin" / "python").touch()
    named = tester.run("launch", "slurm", "run.toml", "--venv", "env", "--dry-run").assert_ok().stdout
    assert variables(named, "venv", "folder") == [f"'{tester.folder / 'env'}'", f"'{tester.folder}'"]
    tester.write("a b.sif", "")
    image = tester.run("launch", "slurm", "run.toml", "--container", "a b.sif", "--dry-run").assert_ok().stdout
    assert variables(image, "venv", "container", "versions", "packages") == ["''", "'a b.sif'", "", ""]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-t", "6", "-i", "4", "--gpus-per-node", "8"], "the run needs 10 GPUs (6 for trainers, 4 for producers), and 1 node of 8 has 8"),
        (["-i", "4", "-ptp", "2", "--nodes", "2", "--gpus-per-node", "4"], "9 GPUs (1 for trainers, 8 for producers of 2 each)"),
        (["--master_address", "n1:6379"], "--master_address n1:6379: the batch file sets the address of its Ray head; leave it out"),
        (["--venv", "nowhere"], "--venv nowhere is not a virtual environment"),
        (["--venv", "x", "--container", "y"], "two environments for one job"),
        (["--container", "y", "--plugin", "z"], "--plugin z cannot be installed into the image"),
        (["--container", "y", "--wheels", "z"], "--wheels z cannot be installed into the image"),
        (["--wheels", "nowhere"], f"--wheels nowhere is not a folder with a wheel of rlcore {RLCORE}; type make wheels"),
        (["--plugin", "rlcore"], "--plugin rlcore: rlcore is not on any index; type --wheels and a folder of wheels"),
        (["--plugin", "x", "RLCORE_plugin.code[a]==1"], "rlcore-plugin-code is not on any index"),
        (["--plugin", "rlcore-plugin-vllm"], "rlcore-plugin-vllm is not on any index"),
        (["--dry-run", "--submit"], "type one of them"),
        (["--nodes", "0"], "--nodes: '0' must be a whole number from 1 to 999999"),
        (["--cpus-per-node", "many"], "'many' must be a whole number from 1 to 999999"),
        (["--container", "nowhere.sif"], "--container nowhere.sif is not found here"),
        (["--plugin", "foo; rm"], "--plugin 'foo; rm' is not a package"),
        (["--out", "nofolder/x.sbatch"], "the folder nofolder does not exist"),
        (["-m", "absent", "-b", "transformers"], "model absent is not found here"),
        (["-tbs", "2", "-tMbs", "3"], "type -tMbs 2 or -tbs 3"),
        (["--nodse", "2"], "--nodes"),
        (
            ["-i", "1", "-ptp", "8", "--nodes", "4", "--gpus-per-node", "3"],
            "4 nodes of 3 cannot hold them: the GPUs of one producer must be on one",
        ),
        (["-t", "2", "-i", "3", "-ptp", "3", "--nodes", "3", "--gpus-per-node", "4"], "cannot hold them: the GPUs of one producer must"),
        (["-t", "2", "-i", "4", "--placement", "colocated"], "4 producers of 1 GPUs do not fit onto 2 trainers; type -i 2 -ptp 1"),
        (["-ptp", "2", "--placement", "colocated", "--gpus-per-node", "4"], "1 producers of 2 GPUs do not fit onto 1 trainers"),
        (["--ray_dir", "/tmp/" + "x" * 36], "is too long: Ray puts its sockets below it, so it can have at most 40 bytes"),
        (["--ray-dir", "/tmp/" + "é" * 20], "is too long"),
    ],
)
def test_refused_in_one_sentence(tester: RunTester, words: list[str], said: str) -> None:
    tester.run("launch", "slurm", "run.toml", *words).assert_refused(said)


def test_just_enough_devices_are_let_pass_and_colocated_ones_are_shared(tester: RunTester) -> None:
    tester.run("launch", "slurm", "run.toml", "-t", "6", "-i", "2", "--gpus-per-node", "8", "--dry-run").assert_ok()
    shared = ["-t", "8", "-i", "8", "--gpus-per-node", "8", "--dry-run"]
    tester.run("launch", "slurm", "run.toml", *shared).assert_refused("16 GPUs")
    tester.run("launch", "slurm", "run.toml", *shared, "--placement", "colocated").assert_ok()
    cores = tester.run("launch", "slurm", "run.toml", "--training-device", "cpu", "--inference-device", "cpu", "--dry-run").assert_ok()
    assert "gpus=0\n" in cores.stdout


SHAPES = [(1, 1, 8, 4), (1, 3, 4, 2), (2, 3, 3, 3), (6, 5, 2, 3), (3, 7, 5, 4), (9, 4, 1, 2), (1, 1, 1, 7)]


@pytest.mark.parametrize(("trainers", "producers", "size", "nodes"), SHAPES)
def test_the_devices_that_it_asks_for_hold_the_run_and_one_less_would_not(
    tester: RunTester, trainers: int, producers: int, size: int, nodes: int
) -> None:
    words = [
        "launch",
        "slurm",
        "run.toml",
        "-t",
        str(trainers),
        "-i",
        str(producers),
        "-ptp",
        str(size),
        "--nodes",
        str(nodes),
        "--dry-run",
    ]
    (gpus,) = map(int, re.findall(r"--gpus-per-node=(\d+)", tester.run(*words).assert_ok().stdout))
    views = [Node(node_id=str(number), address="", cpus=64.0, gpus=float(gpus)) for number in range(nodes)]
    place(views, trainers=RoleNeeds(count=trainers, gpus=1.0), producers=RoleNeeds(count=producers, gpus=float(size)))
    if gpus > 1:
        tester.run(*words, "--gpus-per-node", str(gpus - 1)).assert_refused("; type --")


@pytest.mark.parametrize(
    ("trainers", "producers", "size", "nodes"), [(2, 3, 3, 3), (6, 5, 2, 1), (3, 7, 5, 1), (1, 1, 9, 4), (17, 1, 1, 1)]
)
def test_what_it_says_to_type_instead_is_accepted(tester: RunTester, trainers: int, producers: int, size: int, nodes: int) -> None:
    words = ["launch", "slurm", "run.toml", "-t", str(trainers), "-i", str(producers), "-ptp", str(size), "--dry-run"]
    asked = {"--nodes": str(nodes), "--gpus-per-node": "8" if size > 3 else "4"}
    said = tester.run(*words, *sum(asked.items(), ())).assert_refused("GPUs").stderr
    ((flag, value),) = re.findall(r"type (--\S+) (\d+)", said)
    tester.run(*words, *sum({**asked, flag: value}.items(), ())).assert_ok()
    if flag == "--nodes":
        tester.run(*words, *sum({**asked, flag: str(int(value) - 1)}.items(), ())).assert_refused("GPUs")


def test_a_role_on_cores_takes_no_device(tester: RunTester) -> None:
    words = ["launch", "slurm", "run.toml", "-t", "6", "-i", "4", "--training-device", "cpu", "--dry-run"]
    assert "--gpus-per-node=4\n" in tester.run(*words).assert_ok().stdout


@pytest.mark.parametrize("where", ["flag", "file"])
def test_the_folder_for_ray_goes_to_its_head_and_not_to_the_driver(where: str) -> None:
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        tester = RunTester(Path(short) / "run", in_process=True).with_fakes()
        tester.fake_run(**({"run": {"ray_dir": "ray"}} if where == "file" else {}))
        typed = ["--ray-dir", "ray"] if where == "flag" else []
        text = tester.run("launch", "slurm", "run.toml", *typed, "--dry-run").assert_ok().stdout
        assert variables(text, "ray_dir", "train") == [f"'{tester.folder / 'ray'}'", "'run.toml' '--ray_dir' 'none'"]
        assert not (tester.folder / "ray").exists(), "it is made where Ray starts"
        driver = ["train", "run.toml", "--ray_dir", "none", "--runtime", "ray", "--master_address", "n1:20000", "--dry-run"]
        assert "ray_dir = " not in tester.run(*driver).assert_ok().stdout
        none = tester.run("launch", "slurm", "run.toml", "--ray_dir", "none", "--dry-run").assert_ok().stdout
        assert variables(none, "ray_dir", "train") == ["''", "'run.toml' '--ray_dir' 'none'"]


def test_what_is_no_utf_8_is_written_as_it_was_typed(tmp_path: Path) -> None:
    tester = RunTester(Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xffb"))).with_fakes()
    tester.fake_run(model={"model": "model"}, data={"dataset": "train.jsonl"})
    tester.run("launch", "slurm", "run.toml", "-s", os.fsdecode(b"c\xffd"), "--out", os.fsdecode(b"e\xff.sbatch")).assert_ok()
    text = (tester.folder / os.fsdecode(b"e\xff.sbatch")).read_bytes()
    assert all(word in text for word in (b"/a\xffb", b"c\xffd"))
    command = [sys.executable, "-c", PROGRAM, "launch", "slurm", "run.toml", "-s", os.fsdecode(b"c\xffd"), "--dry-run"]
    shown = subprocess.run(command, cwd=tester.folder, env={**os.environ, **tester.plugins.environment}, capture_output=True, check=True)
    assert shown.stdout == text


def test_a_file_that_is_there_is_not_overwritten(tester: RunTester) -> None:
    tester.write("run.sbatch", "edited by hand")
    tester.run("launch", "slurm", "run.toml").assert_refused("run.sbatch exists already; delete it, or type --out")
    assert (tester.folder / "run.sbatch").read_text() == "edited by hand"


def test_a_file_that_does_not_fit_is_not_left_half_written(tester: RunTester) -> None:
    words = [sys.executable, "-c", PROGRAM, "launch", "slurm", "run.toml"]
    command = ["bash", "-c", 'ulimit -f 1; exec "$@"', "limited", *words]
    env = {**os.environ, **tester.plugins.environment, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tester.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, "a disk without room is no fault of what was typed"
    assert done.stderr.splitlines() == ["error: run.sbatch: File too large; make room on its disk"]
    assert not (tester.folder / "run.sbatch").exists()


def test_submit_hands_the_file_to_sbatch_and_passes_its_exit_code_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.fake_run()
    tester.run("launch", "slurm", "run.toml", "--submit", env={"PATH": "/nowhere"}).assert_refused("--submit needs sbatch")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text('#!/bin/sh\necho "sbatch got $*"\nexit 3\n')
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    done = tester.run("launch", "slurm", "run.toml", "--submit", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.exit_code == 3
    assert done.lines[1:] == ["sbatch got run.sbatch", "run.sbatch was removed, because sbatch refused it"]
    assert not done.written
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\n")
    assert tester.run("launch", "slurm", "run.toml", "--submit", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}).written


def test_help_names_its_own_flags_and_those_of_train(tester: RunTester) -> None:
    text = tester.run("launch", "--help").assert_ok().stdout
    assert all(flag in text for flag in ("--gpus-per-node", "--container", "--submit", "--max-staleness", "--help-all"))
    assert "--placement" in tester.run("launch", "--help-all").assert_ok().stdout
