"""Environments whose processes play in sessions of a sandbox: they reach the gateway, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from episode_player import EpisodePlayer, descendants
from rlcore_plugin_agents.agent_options import ProgramOptions, SessionOptions
from rlcore_plugin_agents.command_options import CommandOptions

from rlcore.api import PluginError, Score
from tests.levels import need

PROBE = '''
import json, os, socket, sys, urllib.error, urllib.request


def refused(url, key):
    """The status of a call with a key."""
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, headers))
    except urllib.error.HTTPError as error:
        return error.code


def reached(row):
    """What of the host can be reached."""
    found = []
    for host, port in row["addresses"]:
        with socket.socket() as client:
            client.settimeout(5)
            if client.connect_ex((host, port)) == 0:
                found.append("address")
    for path in row["paths"]:
        if os.path.exists(path):
            found.append("path")
    for pid in row["pids"]:
        try:
            os.kill(pid, 0)
            found.append("process")
        except OSError:
            pass
    with socket.socket(socket.AF_UNIX) as client:
        if client.connect_ex(row["abstract"]) == 0:
            found.append("socket")
    return found + ["secret"] * ("SECRET" in os.environ)


def descriptors():
    """The inherited descriptors of this process and their targets, without standard input, output and error."""
    links = {int(name): "/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")}
    return sorted(number for number, link in links.items() if number > 2 and os.path.exists(link))


INHERITED = descriptors()
OTHERS = {}


def findings(row, url, key):
    """What an episode found out."""
    statuses = {"foreign": refused(url, "another"), "closed": refused(url, OTHERS["key"]) if OTHERS else 410}
    OTHERS["key"] = key
    return {"reached": reached(row), "statuses": statuses, "url": url, "cwd": os.getcwd()}
'''
FUNCTION = (
    PROBE
    + '''
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """Asks once, and looks around."""
    await model.chat(row["messages"], max_tokens=2)
    return EpisodeResult(reward=1.0, extra=findings(row, model.base_url, model.api_key))
'''
)
CLASS = (
    PROBE
    + '''
from rlcore.api.environments import EpisodeResult, TurnEnvironment


class Game(TurnEnvironment):
    """Asks once, and looks around."""

    def reset(self, row):
        return "guess"

    def step(self, answer):
        return None, 0.0, True

    async def play(self, model, row):
        answer = await model.chat([{"role": "user", "content": self.reset(row)}], max_tokens=2)
        assert self.step(answer)[2]
        return EpisodeResult(reward=1.0, extra=findings(row, model.base_url, model.api_key))
'''
)
PROGRAM = (
    PROBE
    + """
for line in sys.stdin:
    said = json.loads(line)
    if "cancel" in said:
        continue
    url, key = said["base_url"], said["key"]
    body = json.dumps({"model": said["model"], "messages": said["row"]["messages"], "max_tokens": 2}).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, headers)).close()
    extra = {**findings(said["row"], url, key), "prefix": sys.prefix, "inherited": INHERITED}
    print(json.dumps({"episode": said["episode"], "reward": 1.0, "extra": extra}), flush=True)
"""
)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that a session can be shown, because it is not in /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rlcore-test-") as folder:
        Path(folder).chmod(0o755)  # sessions of root run as another user
        yield Path(folder)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    need("namespaces")
    before = set(Path(tempfile.gettempdir()).glob("rlcore-gateway-*"))
    yield
    assert not descendants()
    assert set(Path(tempfile.gettempdir()).glob("rlcore-gateway-*")) <= before


def gateway_of(player: EpisodePlayer) -> tuple[psutil.Process, int]:
    """The gateway process, and its port once it listens."""
    while True:
        guard = player.agent._gateways.links[0].process
        for process in psutil.Process(guard.pid).children() if guard is not None else ():
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    return process, one.laddr.port
        time.sleep(0.05)


def environment(form: str, folder: Path) -> tuple[str, Any]:
    """Return the name or source of an environment, and its options."""
    if form != "program":
        return {"function": FUNCTION, "class": CLASS}[form], None
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "other"], check=True)
    (folder / "game.py").write_text(PROGRAM)
    return "program", ProgramOptions(command=f"python -u {folder / 'game.py'}", python=folder / "other")


def look_around(folder: Path, tmp_path: Path, form: str, sandbox: SessionOptions | None) -> list[tuple[dict[str, Any], Score]]:
    """Play two episodes that try to reach a host with something to reach."""
    named, options = environment(form, folder)
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text("{}")
    with (
        socket.create_server(("0.0.0.0", 0), backlog=64) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        EpisodePlayer(tmp_path, named, options, workers=1, sandbox=sandbox, error_budget=1.0) as player,
    ):
        abstract.bind(f"\0rlcore-test-{os.getpid()}")
        abstract.listen(64)
        gateway, own = gateway_of(player)
        port, host = server.getsockname()[1], socket.gethostbyname(socket.gethostname())
        row = {
            "addresses": [("127.0.0.1", port), (host, port), ("127.0.0.1", own)],
            "paths": [str(folder / "run" / "metrics.jsonl"), str(tmp_path / "model"), f"/proc/{gateway.pid}/environ"],
            "pids": [os.getpid(), gateway.pid],
            "abstract": f"\0rlcore-test-{os.getpid()}",
        }
        return [(dict(rollout.extra), score) for rollout, score in player.play(row, row)]


@pytest.mark.parametrize("form", ["function", "class", "program"])
def test_an_agent_in_a_session_reaches_the_gateway_and_nothing_else(
    form: str, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the user")
    for extra, score in look_around(outside, tmp_path, form, SessionOptions()):
        assert (extra["outcome"], extra["reason"], score.value) == ("ok", "", 1.0)
        assert extra["reached"] == []
        assert extra["statuses"] == {"foreign": 401, "closed": 410}
        assert extra["url"] == "http://127.0.0.1:9471/v1"
        assert extra["cwd"] == "/tmp/workspace"
        if form == "program":
            assert extra["prefix"] == str(outside / "other")
            assert extra["inherited"] == []


def test_without_a_sandbox_the_same_agent_reaches_all_of_it(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the user")
    for extra, _ in look_around(outside, tmp_path, "program", None):
        assert extra["reached"] == ["address"] * 3 + ["path"] * 3 + ["process"] * 2 + ["socket", "secret"]
        assert extra["statuses"] == {"foreign": 401, "closed": 410}


PLAY = '''
import asyncio, os, signal, subprocess, sys, time
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """Plays as the row says."""
    do = row["do"]
    if do == "dies first":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = await model.chat(row["messages"], max_tokens=2)
    if do == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if do == "hogs":
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 24)))
    if do == "exits":
        print("no more", file=sys.stderr, flush=True)
        os._exit(3)
    if do == "daemon":
        subprocess.Popen(["/usr/bin/sleep", "600"], start_new_session=True)
    if do == "hangs":
        subprocess.Popen(["/usr/bin/sleep", "600"], start_new_session=True)
        time.sleep(600)
    return EpisodeResult(reward=1.0)
'''


def test_each_outcome_has_its_effect_in_a_session(tmp_path: Path) -> None:
    does = ("plays", "killed", "dies first", "hogs", "exits", "daemon")
    options = SessionOptions(memory_mb=256)
    with EpisodePlayer(tmp_path, PLAY, error_budget=1.0, workers=2, sandbox=options) as player:
        episodes = player.play(*({"do": do} for do in does))
    found = {do: (rollout.extra["outcome"], score.reason) for do, (rollout, score) in zip(does, episodes, strict=True)}
    assert {do: outcome for do, (outcome, _) in found.items()} == {
        "plays": "ok",
        "killed": "lost",
        "dies first": "lost",
        "hogs": "crashed",
        "exits": "crashed",
        "daemon": "ok",
    }
    assert found["killed"][1] == "its process was killed by signal 9 (Killed); the first attempt was lost, too"
    assert found["hogs"][1] == "the program reached the limit memory of its session, and had not ended the episode"
    assert found["exits"][1] == "the program ended with exit code 3: no more, and had not ended the episode"


def test_an_episode_that_the_end_of_a_session_cuts_off_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_plugin_agents.worker_sessions._DAY", 4.0)
    with EpisodePlayer(tmp_path, PLAY, error_budget=1.0, sandbox=SessionOptions()) as player:
        ((rollout, score),) = player.play({"do": "hangs"})
    assert rollout.extra["outcome"] == "lost"
    assert score.reason == "its process reached the limit wall of its session; the first attempt was lost, too"


def test_a_session_that_is_stopped_ends_at_the_deadline(tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, deadline=4.0, sandbox=SessionOptions()) as player:
        ((rollout, score),) = player.play({"do": "stops"})
    assert (rollout.extra["outcome"], score.reason) == ("timeout", "the episode had not ended after 4 s")


@pytest.mark.parametrize("victim", ["gateway", "supervisor"])
def test_an_episode_whose_gateway_or_sandbox_is_killed_is_played_again(victim: str, tmp_path: Path) -> None:
    with EpisodePlayer(tmp_path, PLAY, workers=1, sandbox=SessionOptions()) as player:
        player.begin([{"do": "hangs"}])
        player.step_until(lambda: len(player.engine.log) == 1)
        gateway, _ = gateway_of(player)
        player.step_until(lambda: "sleep" in [child.name() for child in descendants()])
        before = gateway.children(recursive=True)
        (sleep,) = (one for one in before if one.name() == "sleep")
        supervisor = sleep.parents()[1]
        (gateway if victim == "gateway" else supervisor).kill()
        player.step_until(lambda: len(player.engine.log) == 2)
        _, alive = psutil.wait_procs(before if victim == "gateway" else [supervisor, sleep], timeout=20)
        assert not alive


def test_nothing_is_left_of_a_producer_that_is_killed(tmp_path: Path) -> None:
    source = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from pathlib import Path
from episode_player import EpisodePlayer, descendants
from rlcore_plugin_agents.agent_options import SessionOptions
from test_agents_in_a_sandbox import PLAY
player = EpisodePlayer(Path({str(tmp_path)!r}), PLAY, sandbox=SessionOptions())
player.begin([{{"do": "hangs"}}])
player.step_until(lambda: len(player.engine.log) == 1 and "sleep" in [child.name() for child in descendants()])
print(*(child.pid for child in descendants()), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        left = [psutil.Process(int(word)) for word in producer.stdout.readline().split()]
        assert {"bwrap", "sleep"} <= {process.name() for process in left}
        producer.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(left, timeout=20)
    assert not alive


def test_a_machine_without_bubblewrap_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = "the environment's processes have no sandbox: .*bubblewrap is not installed.*apt install bubblewrap"
    with EpisodePlayer(tmp_path, PLAY, sandbox=SessionOptions()) as player, pytest.raises(PluginError, match=words):
        player.play({"do": "plays"})


def test_a_program_in_tmp_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text(PROGRAM)
    options = ProgramOptions(command=f"{sys.executable} {tmp_path / 'game.py'}")
    words = r"can be started in a sandbox: the session's readable names '.*game.py', but programs cannot see .*; move the folder elsewhere"
    with EpisodePlayer(tmp_path, "program", options, sandbox=SessionOptions()) as player, pytest.raises(PluginError, match=words):
        player.play({})


def test_a_program_begins_in_the_folder_that_it_names_which_it_can_read_and_not_write(outside: Path, tmp_path: Path) -> None:
    (outside / "words.txt").write_text("a word")
    (outside / "game.py").write_text(
        PROGRAM.replace('"prefix": sys.prefix', '"word": open("words.txt").read(), "write": os.access("words.txt", os.W_OK)')
    )
    options = ProgramOptions(command=f"{sys.executable} -u game.py", cwd=outside)
    row = {"addresses": [], "paths": [], "pids": [], "abstract": "\0nothing"}
    with EpisodePlayer(tmp_path, "program", options, sandbox=SessionOptions()) as player:
        ((rollout, _),) = player.play(row)
    assert {name: rollout.extra.get(name) for name in ("reason", "cwd", "word", "write")} == {
        "reason": "",
        "cwd": str(outside),
        "word": "a word",
        "write": False,
    }


def test_a_class_plays_in_the_environment_that_it_names(outside: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", outside / "other"], check=True)
    (site,) = (outside / "other").glob("lib/python*/site-packages")
    installed = sysconfig.get_path("purelib")
    (site / "shared.pth").write_text(installed)
    source = CLASS.replace("class Game(TurnEnvironment):", f"class Game(TurnEnvironment):\n    environment = {str(outside / 'other')!r}\n")
    source = source.replace("extra=find", 'extra={"prefix": sys.prefix} | find')
    row = {"addresses": [], "paths": [str(outside / "run")], "pids": [], "abstract": "\0nothing"}
    (outside / "run").mkdir()
    with EpisodePlayer(tmp_path, source, workers=1, sandbox=SessionOptions(readable=(installed,))) as player:
        ((rollout, _),) = player.play(row)
    assert (rollout.extra["reason"], rollout.extra["prefix"], rollout.extra["reached"]) == ("", str(outside / "other"), [])


def test_a_session_sees_the_modules_of_the_path_and_no_file_beside_them(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("of_mine", "runs"):
        (outside / name).mkdir()
    (outside / "of_mine" / "__init__.py").write_text("")
    (outside / "module_of_mine.py").write_text("")
    for name in ("runs/metrics.jsonl", "rows.jsonl", ".env"):
        (outside / name).write_text("secret")
    monkeypatch.syspath_prepend(str(outside))
    source = f'''
import os
from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """Imports what is beside it."""
    import module_of_mine, of_mine

    await model.chat(row["messages"], max_tokens=2)
    return EpisodeResult(reward=1.0, extra={{"seen": sorted(os.listdir({str(outside)!r}))}})
'''
    with EpisodePlayer(tmp_path, source, sandbox=SessionOptions()) as player:
        ((rollout, _),) = player.play({})
    assert (rollout.extra["reason"], rollout.extra["seen"]) == ("", ["module_of_mine.py", "of_mine"])


def test_a_command_line_agent_works_and_is_graded_in_a_session_and_cannot_give_its_own_reward(outside: Path, tmp_path: Path) -> None:
    script = """
import json, os, sys, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 2}).encode()
headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)).close()
try:
    found = os.listdir("/proc/%d/fd" % os.getppid())
except OSError as error:
    found = type(error).__name__
print(json.dumps({"pwd": os.getcwd(), "outside": os.path.exists(sys.argv[2]), "found": found}))
open("answer", "w").write("it")
"""
    (outside / "base").mkdir()
    (outside / "base" / "given").write_text("given")
    (outside / "secret").write_text("secret")
    options = CommandOptions(
        command=("/usr/bin/python3", "-c", script, "{prompt}", str(outside / "secret")),
        env={"KEY": "{key}", "URL": "{base_url}"},
        folder=outside / "base",
        grader=("/bin/sh", "-c", "grep -q it answer && grep -q given given"),
    )
    with EpisodePlayer(tmp_path, "command", options, sandbox=SessionOptions(readable=(str(outside / "base"),))) as player:
        ((rollout, score),) = player.play({})
    assert (rollout.extra["outcome"], rollout.extra["reason"], score.value) == ("ok", "", 1.0)
    told = json.loads(rollout.extra["output"])
    assert told == {"pwd": "/tmp/rlcore-agents-1000/0/workspace", "outside": False, "found": "PermissionError"}
    assert rollout.extra["files"] == {"answer": "it"}


def test_a_process_without_a_mark_changes_nothing_that_is_graded_later_in_its_session(outside: Path, tmp_path: Path) -> None:
    script = """
import json, os, subprocess, sys, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 2}).encode()
headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)).close()
subprocess.run(["sh", "agent.sh"], check=True)
"""
    writes = "while :; do echo it > /tmp/rlcore-agents-1000/0/workspace/answer; echo > /tmp/beat; sleep 0.01; done"
    beat = f"env -i setsid -f /bin/sh -c '{writes}'"
    wait = "while [ ! -e /tmp/beat ]; do sleep 0.01; done"
    options = CommandOptions(
        command=("/usr/bin/python3", "-c", script, "{prompt}"),
        env={"KEY": "{key}", "URL": "{base_url}"},
        grader=("/bin/sh", "-c", "rm -f answer; sleep 0.3; test -e answer"),
    )
    rows = [{"files": {"agent.sh": text}} for text in (f"{beat}; {wait}", wait)]  # the second one waits for ever in another session
    with EpisodePlayer(tmp_path, "command", options, workers=1, deadline=20.0, sandbox=SessionOptions()) as player:
        episodes = player.play(*rows)
    assert [(rollout.extra["outcome"], score.value) for rollout, score in episodes] == [("ok", 0.0), ("ok", 0.0)]
