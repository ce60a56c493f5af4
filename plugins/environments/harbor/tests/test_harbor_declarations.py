"""What can be known of Harbor's environment without Harbor: options, images, and the program that runs commands inside a session."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_harbor import images, rlcore_check_run, session_commands
from rlcore_plugin_harbor.options import HarborOptions

from rlcore.api.sandbox import SandboxOptions, SessionJob, open_sandbox
from rlcore.testing import RunTester
from tests.levels import need

TASKS = Path(__file__).parent / "tasks"


def test_the_environment_and_its_options_are_listed_without_harbor(tmp_path: Path) -> None:
    shown = json.loads(RunTester(tmp_path, in_process=True).run("show", "environment", "harbor", "--json").assert_ok().stdout)
    names = [option["path"].rpartition(".")[2] for option in shown["options"]]
    assert names == ["agent", "agent_options", "path", "readable", "reward", "on_missing_reward", "memory_mb", "disk_mb", "processes"]


@pytest.mark.parametrize("given", [{"agent": ""}, {"memory_mb": 1}, {"processes": 0}, {"on_missing_reward": "0"}, {"image": "debian"}])
def test_bad_options_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HarborOptions(**given)


def test_a_session_around_it_is_refused_before_a_run() -> None:
    def config(environment: str, **options: Any) -> Any:
        return SimpleNamespace(sampling=SimpleNamespace(environment=environment, options=options))

    (said,) = rlcore_check_run(config("harbor", sandbox={"level": "namespaces"}))
    assert "inside another one; leave it out" in said
    (said,) = rlcore_check_run(config("Harbor", episodes_per_process=2))
    assert "plays one trial in a process" in said
    assert not rlcore_check_run(config("harbor", sandbox=None, episodes_per_process=1))
    assert not rlcore_check_run(config("command", sandbox={"level": "namespaces"}))


# --- images ------------------------------------------------------------------------------------------------------------------


def needed(tmp_path: Path, dockerfile: str = "", **config: Any) -> str:
    """Why a task with this Dockerfile needs an image."""
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "a.txt").write_text("a")
    if dockerfile:
        (tmp_path / "Dockerfile").write_text(dockerfile)
    plain = {"docker_image": None, "gpus": None, "tpu": None, "mcp_servers": [], "workdir": None}
    return images.image_need(tmp_path, SimpleNamespace(**{**plain, **config}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("why", "dockerfile", "config"),
    [
        ("RUN in line 3 of environment/Dockerfile", "FROM debian:12\n# tools\nRUN apt-get update && \\\n  apt-get install gcc\n", {}),
        ("FROM python:3.12 in line 1 of environment/Dockerfile", "FROM python:3.12\n", {}),
        ("COPY in line 2 of environment/Dockerfile", "FROM debian\nCOPY --from=build /x /app\n", {}),
        ("ADD in line 2 of environment/Dockerfile", "FROM debian\nADD https://example.com/x /app\n", {}),
        ("COPY b.txt /app in line 2 of environment/Dockerfile, which names no file", "FROM debian\nCOPY b.txt /app\n", {}),
        ("it works in /srv, and a session only in /tmp, /app", "FROM debian\nWORKDIR /srv\n", {}),
        ("docker_image = 'x' in task.toml", "", {"docker_image": "x"}),
        ("gpus, a tpu or mcp_servers in task.toml", "", {"gpus": 1}),
    ],
)
def test_a_task_that_needs_an_image_is_named_with_the_reason(why: str, dockerfile: str, config: dict[str, Any], tmp_path: Path) -> None:
    assert needed(tmp_path, dockerfile, **config).startswith(why)


def test_a_compose_file_needs_an_image(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yaml").write_text("services: {}\n")
    assert needed(tmp_path) == "environment/docker-compose.yaml"


def test_what_a_plain_dockerfile_copies_and_sets(tmp_path: Path) -> None:
    text = "FROM docker.io/library/debian:12-slim\nLABEL a=b\nWORKDIR /app\nWORKDIR sub\nENV A=1 B='2'\nENV C the value\n"
    assert not needed(tmp_path, text + "COPY data ./in\nCOPY data/*.txt /data/\nCOPY data/a.txt b.txt\nCMD bash\n")
    setup = images.setup_of(tmp_path, SimpleNamespace(docker_image=None, gpus=0, tpu=None, mcp_servers=[], workdir=None))  # type: ignore[arg-type]
    assert (setup.workdir, setup.env) == ("/app/sub", {"A": "1", "B": "2", "C": "the value"})
    file = tmp_path / "data" / "a.txt"
    assert setup.copies == ((tmp_path / "data", "/app/sub/in"), (file, "/data/a.txt"), (file, "/app/sub/b.txt"))


@pytest.mark.parametrize("source", ["../secret.txt", "link.txt", "links/secret.txt"])
def test_a_task_reads_no_file_outside_of_its_folder(source: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    environment = tmp_path / "task" / "environment"
    environment.mkdir(parents=True)
    assert not needed(environment, "FROM debian\nCOPY Dockerfile /app\n")
    assert not images.outside_link(tmp_path / "task")
    if source == "link.txt":
        (environment / source).symlink_to(tmp_path / "secret.txt")
    elif source.startswith("links"):
        (environment / "links").symlink_to(tmp_path)
    words = f"COPY {'../' * source.startswith('..')}{source} /app"
    assert "which reads outside of environment" in needed(environment, f"FROM debian\n{words}\n")
    assert images.outside_link(tmp_path / "task") == ("" if source.startswith("..") else f"environment/{source.partition('/')[0]}")
    (environment / "inside").symlink_to(environment / "Dockerfile")
    assert not needed(environment, "FROM debian\nCOPY inside /app\n")


def test_a_task_without_files_copies_none(tmp_path: Path) -> None:
    config = SimpleNamespace(docker_image=None, gpus=0, tpu=None, mcp_servers=[], workdir=None)
    assert images.setup_of(tmp_path, config).copies == ((tmp_path, "/app"),)  # type: ignore[arg-type]
    assert images.setup_of(tmp_path / "environment", config).copies == ()  # type: ignore[arg-type]


# --- the program in a session ---------------------------------------------------------------------------------------------------


class Commands:
    """That program, outside a session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen((sys.executable, session_commands.__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said = json.loads(self._process.stdout.readline())
        return {name: base64.b64decode(value) if name in ("stdout", "stderr") else value for name, value in said.items()}

    def ask(self, command: str, stdin: bytes = b"", cwd: str = "/", **env: str) -> dict[str, Any]:
        self.send(id=0, command=command, stdin=base64.b64encode(stdin).decode(), cwd=cwd, env=env)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def commands():
    made = Commands()
    yield made
    made.close()


def test_commands_have_input_variables_and_a_folder(commands: Commands, tmp_path: Path) -> None:
    said = commands.ask("cat; pwd; echo $A >&2; exit 3", b"in\xff\n", str(tmp_path), A="b")
    assert said == {"id": 0, "code": 3, "stdout": b"in\xff\n" + str(tmp_path).encode() + b"\n", "stderr": b"b\n"}
    assert commands.ask("kill -9 $$")["code"] == 137
    assert "No such file" in commands.ask("true", cwd=str(tmp_path / "missing"))["error"]


def test_a_daemon_delays_no_answer_and_a_killed_command_has_one(commands: Commands) -> None:
    said = commands.ask("sleep 60 & echo $!")
    subprocess.run(("kill", said["stdout"].decode().strip()), check=True)
    commands.send(id=1, command="sleep 60", stdin="", cwd="/", env={})
    commands.send(id=2, command="echo ran", stdin="", cwd="/", env={})
    assert commands.answer()["id"] == 2
    commands.send(kill=1)
    assert commands.answer() == {"id": 1, "code": 137, "stdout": b"", "stderr": b""}


def test_a_command_in_a_session_cannot_open_the_memory_or_the_descriptors_of_the_program() -> None:
    need("namespaces")
    command = "(exec 7<>/proc/$PPID/mem) && echo memory; (exec 7>>/proc/$PPID/fd/1) && echo output; ls /proc/$PPID/fd; true"
    source = Path(session_commands.__file__).read_text()
    job = SessionJob(argv=(sys.executable, "-I", "-c", source), readable=(Path(sys.prefix),))
    with open_sandbox(SandboxOptions(level="namespaces")) as sandbox, sandbox.session(job) as session:
        session.stdin.write(json.dumps({"id": 1, "command": command, "cwd": "/", "env": {}, "stdin": ""}).encode() + b"\n")
        said = json.loads(session.stdout.readline())
        session.kill()
    assert (said["code"], base64.b64decode(said["stdout"])) == (0, b"")
    assert b"Permission denied" in base64.b64decode(said["stderr"])
