"""Sessions: a command that runs for minutes, speaks over pipes, reaches one Unix socket, and leaves its files to be read."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit_sandbox import FUSE, opened
from kit_sessions import LIMITS, Gateway, job, line, listening, ran
from rlcore_plugin_sandbox import bubblewrap
from rlcore_plugin_sandbox import session as session_module

from rlcore.api import SandboxError
from rlcore.api.sandbox import Limit, Limits, Sandbox, SessionJob
from rlcore.testing import FakeSandbox
from tests.levels import need


def test_the_caller_speaks_with_it_line_by_line(sandbox: Sandbox) -> None:
    with sandbox.session(job("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)")) as session:
        for word in ("one", "two"):
            session.stdin.write(f"{word}\n".encode())
            assert line(session) == word.upper()
        assert session.poll() is None
        session.stdin.close()
        result = session.wait(FUSE)
        assert (result.exit_code, result.signal, result.limit, session.poll()) == (0, None, None, result)


def test_files_go_in_and_come_out(sandbox: Sandbox) -> None:
    source = """
import os
print(open('a/b.txt').read(), os.getcwd())
os.makedirs('c/d'); open('c/d/e', 'wb').write(bytes(300)); os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'c/out'); os.mkfifo('pipe')
open(os.path.expanduser('~/own'), 'w').close(); open('/tmp/elsewhere', 'w').close()
"""
    with sandbox.session(job(source, files={"a/b.txt": b"given"})) as session:
        assert line(session) == "given /tmp/workspace"
        assert session.wait(FUSE).ok
        assert session.names() == ("a/b.txt", "c/d/e")
        assert (session.read("a/b.txt"), session.read("c/d/e")) == (b"given", bytes(300))
        for name in ("link", "c/out/passwd", "pipe", "c", "none"):
            with pytest.raises(FileNotFoundError, match="the session has no"):
                session.read(name)
        for name in ("../home/own", "/etc/passwd", ""):
            with pytest.raises(ValueError, match="relative path"):
                session.read(name)
    with pytest.raises(SandboxError, match="the session is closed; read its files before"):
        session.names()


def test_files_nested_too_deep_are_left_out(sandbox: Sandbox) -> None:
    source = "import os\nopen('top', 'w').close()\nfor _ in range(900): os.mkdir('d'); os.chdir('d'); open('f', 'w').close()"
    with sandbox.session(job(source)) as session:
        assert session.wait(FUSE).ok
        names = session.names()
        assert (len(names), names[-1]) == (1 + 64, "top")
        assert all(session.read(name) == b"" for name in names)


def test_it_has_its_own_environment_variables_and_no_others(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_TEST_SECRET", "7fa3")
    source = "import json, os\nprint(json.dumps(dict(os.environ)))\nopen('seen', 'wb').write(open('/proc/self/environ', 'rb').read())"
    with sandbox.session(job(source, env={"API_KEY": "given", "LANG": "C"})) as session:
        found = json.loads(line(session))
        assert found.pop("LC_CTYPE", "") in ("", "C.UTF-8")  # Python's own
        own = {"HOME": "/tmp/home", "TMPDIR": "/tmp", "USER": "agent", "LOGNAME": "agent", "PATH": "/usr/bin:/bin"}
        assert found == own | {"API_KEY": "given", "LANG": "C"}
        assert session.wait(FUSE).ok
        assert b"7fa3" not in session.read("seen")


def test_it_knows_its_user_and_localhost(sandbox: Sandbox) -> None:
    source = "import os, pwd, socket\nprint(pwd.getpwuid(os.getuid()).pw_dir, socket.gethostbyname('localhost'), os.getlogin.__name__)"
    assert ran(sandbox, source)[1] == "/tmp/home 127.0.0.1 getlogin\n"


def test_commands_start_processes_and_wait_for_them(sandbox: Sandbox) -> None:
    shell = "sh -c 'exit 7'; echo $?; (echo late) & wait; trap 'echo child' CHLD; /bin/true; trap - CHLD; echo $(echo inner | cat)"
    with sandbox.session(SessionJob(argv=("/bin/bash", "-c", shell), limits=LIMITS)) as session:
        assert session.stdout.read().split() == [b"7", b"late", b"child", b"inner"]
        assert session.wait(FUSE).ok


def test_python_runs_its_own_pools_of_processes(sandbox: Sandbox) -> None:
    source = "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))\nm.Lock()"
    result, output = ran(sandbox, source)
    assert (result.exit_code, output) == (0, "[1, 2]\n"), result


def test_a_virtual_environment_outside_usr_can_be_used_and_not_changed(sandbox: Sandbox) -> None:
    with tempfile.TemporaryDirectory(prefix="rlcore-test-venv-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{folder}/env"], check=True)
        package = next(Path(folder, "env").glob("lib/python*/site-packages")) / "only_there.py"
        package.write_text("word = 'imported'")
        package.chmod(0o666)
        source = f"""
import only_there, sys
print(only_there.word, sys.prefix)
try: open({str(package)!r}, 'a')
except OSError as error: print(error.errno)
"""
        result, output = ran(sandbox, source, argv=(f"{folder}/env/bin/python", "-c", source), readable=(Path(folder, "env"),))
        assert (result.exit_code, output) == (0, f"imported {folder}/env\n30\n"), result


def test_the_end_of_standard_error_is_kept(sandbox: Sandbox) -> None:
    result, _ = ran(sandbox, "import sys\nsys.stderr.write('e' * 300_000 + 'END')\nsys.exit(3)")
    assert (result.exit_code, len(result.stderr), result.stderr[-4:]) == (3, 16 << 10, b"eEND")


def test_a_command_that_is_not_there_says_so(sandbox: Sandbox) -> None:
    with sandbox.session(SessionJob(argv=("/no/such/command",), limits=LIMITS)) as session:
        result = session.wait(FUSE)
        assert (result.exit_code, result.stderr) == (127, b"/no/such/command: No such file or directory\n")


def test_the_caller_sees_that_a_pipe_is_closed(sandbox: Sandbox) -> None:
    """Neither bubblewrap nor the supervisor holds an end."""
    source = "import os, time\nos.close(0)\nos.close(1)\ntime.sleep(600)"
    with sandbox.session(job(source)) as session:
        assert session.stdout.read() == b""
        with pytest.raises(BrokenPipeError):
            session.stdin.write(b"x")
        assert session.poll() is None


def test_an_event_loop_can_watch_its_end(sandbox: Sandbox) -> None:
    with sandbox.session(job("input()")) as session:
        assert select.select([session.fileno()], [], [], 0)[0] == []
        with pytest.raises(TimeoutError, match="the session still runs after 0 s"):
            session.wait(0)
        session.stdin.write(b"\n")
        assert select.select([session.fileno()], [], [], FUSE)[0] == [session.fileno()]
        result = session.poll()
        assert result is not None
        assert result.ok


# --- the one address ----------------------------------------------------------------------------------------------------------


URLLIB = """
import urllib.request
request = urllib.request.Request("http://127.0.0.1:8000/echo", data=b"x" * 3_000_000)
print(len(urllib.request.urlopen(request).read()), urllib.request.urlopen("http://localhost:8000/echo", data=b"word").read().decode())
"""
HTTPX = """
import httpx
with httpx.Client(base_url="http://127.0.0.1:9123") as client:
    print(*[client.post("/echo", content=f"{n}").text for n in range(5)])
"""


def test_it_reaches_the_server_by_urllib(sandbox: Sandbox, gateway: Gateway) -> None:
    result, output = ran(sandbox, URLLIB, reach=gateway.path)
    assert (result.exit_code, output) == (0, "3000000 word\n"), result


def test_it_reaches_the_server_by_httpx_at_another_port(sandbox: Sandbox, gateway: Gateway) -> None:
    result, output = ran(sandbox, HTTPX, reach=gateway.path, port=9123)
    assert (result.exit_code, output) == (0, "0 1 2 3 4\n"), result


def test_pieces_of_an_answer_arrive_when_they_are_sent(sandbox: Sandbox, gateway: Gateway) -> None:
    source = """
import httpx
with httpx.stream("GET", "http://127.0.0.1:8000/stream", timeout=None) as answer:
    for piece in answer.iter_bytes(): print(piece.decode(), end="", flush=True)
"""
    with sandbox.session(job(source, reach=gateway.path)) as session:
        assert line(session) == "first"
        gateway.go.set()
        assert line(session) == "second"
        assert session.wait(FUSE).ok


def test_fifty_connections_at_once(sandbox: Sandbox, gateway: Gateway) -> None:
    source = """
import asyncio, httpx
async def main():
    async with httpx.AsyncClient(base_url="http://127.0.0.1:8000", timeout=None) as client:
        answers = await asyncio.gather(*[client.get("/many", params={"n": n}) for n in range(50)])
    print([int(answer.text) for answer in answers] == list(range(50)))
asyncio.run(main())
"""
    result, output = ran(sandbox, source, reach=gateway.path)
    assert (result.exit_code, output) == (0, "True\n"), result


def test_the_server_sees_a_client_that_hangs_up(sandbox: Sandbox, gateway: Gateway) -> None:
    source = """
import socket
client = socket.create_connection(("127.0.0.1", 8000))
client.sendall(b"GET /wait HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
input()
client.close()
input()
"""
    with sandbox.session(job(source, reach=gateway.path)) as session:
        session.stdin.write(b"\n")
        assert gateway.left.wait(FUSE)


@pytest.fixture
def server(tmp_path: Path):
    with listening(tmp_path / "s") as listener:
        listener.settimeout(FUSE)
        yield listener


def test_each_direction_ends_by_itself(sandbox: Sandbox, server: socket.socket) -> None:
    source = """
import socket
client = socket.create_connection(("127.0.0.1", 8000))
client.sendall(b"q" * 1_000_000)
client.shutdown(socket.SHUT_WR)
print(len(client.makefile("rb").read()))
"""
    with sandbox.session(job(source, reach=Path(server.getsockname()))) as session:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as received:
            assert len(received.read()) == 1_000_000
            connection.sendall(b"a" * 2_000_000)
            connection.shutdown(socket.SHUT_WR)
            assert line(session) == "2000000"


def test_a_server_that_reads_no_more_can_still_answer(sandbox: Sandbox, server: socket.socket) -> None:
    source = """
import socket
client = socket.create_connection(("127.0.0.1", 8000))
client.sendall(b"begun")
input()
client.sendall(b"more")
second = socket.create_connection(("127.0.0.1", 8000))  # it is answered after the relay has tried to pass "more" on
print(second.recv(9).decode(), flush=True)
print(client.recv(9).decode(), client.recv(9))
"""
    with sandbox.session(job(source, reach=Path(server.getsockname()))) as session:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(9) == b"begun"
            connection.shutdown(socket.SHUT_RD)
            session.stdin.write(b"\n")
            second, _ = server.accept()
            with second:
                second.sendall(b"second")
            assert line(session) == "second"
            connection.sendall(b"refused")
        assert line(session) == "refused b''"
        assert session.wait(FUSE).ok


def test_clients_that_reset_do_no_harm_to_others(sandbox: Sandbox, server: socket.socket) -> None:
    source = """
import socket, struct
good = socket.create_connection(("127.0.0.1", 8000))
good.sendall(b"g")
for _ in range(30):
    client = socket.create_connection(("127.0.0.1", 8000))
    client.sendall(b"x" * 100_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
print(good.recv(9).decode())
"""
    with sandbox.session(job(source, reach=Path(server.getsockname()))) as session:
        connections = [server.accept()[0] for _ in range(31)]
        for connection in connections[1:]:
            connection.settimeout(FUSE)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 16):
                    pass
        connections[0].sendall(b"still")
        assert line(session) == "still"
        assert session.wait(FUSE).ok
        for connection in connections:
            connection.close()


def test_connections_wait_for_a_server_whose_queue_is_full(sandbox: Sandbox, server: socket.socket) -> None:
    server.listen(1)
    source = """
import socket
clients = [socket.create_connection(("127.0.0.1", 8000)) for _ in range(12)]
for number, client in enumerate(clients): client.sendall(bytes([number]))
print(sorted(client.recv(1)[0] for client in clients) == list(range(12)))
"""
    with sandbox.session(job(source, reach=Path(server.getsockname()))) as session:
        for _ in range(12):
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(1))
        assert line(session) == "True"


def test_a_server_that_ends_is_a_closed_connection(sandbox: Sandbox, tmp_path: Path) -> None:
    source = """
import socket
def call():
    with socket.create_connection(("127.0.0.1", 8000)) as client:
        client.sendall(b"x")
        try: return client.recv(9)
        except ConnectionResetError: return b""
print(call(), flush=True); input(); print(call(), call())
"""
    with listening(tmp_path / "s") as server, sandbox.session(job(source, reach=tmp_path / "s")) as session:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"answer")
        assert line(session) == "b'answer'"
        server.close()
        session.stdin.write(b"\n")
        assert line(session) == "b'' b''"


def test_sessions_have_the_same_port_and_different_servers(sandbox: Sandbox, tmp_path: Path) -> None:
    source = "import socket\nwith socket.create_connection(('127.0.0.1', 8000)) as client: print(client.recv(9).decode())"
    with contextlib.ExitStack() as closing:
        servers, sessions = [], []
        for name in ("a", "b"):
            server = closing.enter_context(listening(tmp_path / name))
            servers.append(server)
            sessions.append(closing.enter_context(sandbox.session(job(source, reach=tmp_path / name))))
        for server, name in zip(servers, ("a", "b"), strict=True):
            connection, _ = server.accept()
            with connection:
                connection.sendall(name.encode())
        assert [line(session) for session in sessions] == ["a", "b"]


# --- limits -------------------------------------------------------------------------------------------------------------------


def limited(**limits) -> Limits:
    return Limits(**{name: getattr(LIMITS, name) for name in LIMITS.__slots__} | limits)


@pytest.mark.parametrize(
    ("limit", "source", "limits"),
    [
        (Limit.WALL, "import time\ntime.sleep(600)", {"wall_seconds": 1.0}),
        (Limit.WALL, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", {"wall_seconds": 1.0}),
        (Limit.CPU, "import os\nos.fork()\nwhile True: pass", {"cpu_seconds": 1.0}),
        (Limit.MEMORY, "held = []\nwhile True: held.append(bytearray(b'x') * (1 << 24))", {"memory_bytes": 256 << 20}),
        (
            Limit.MEMORY,
            "import os, time\nfor _ in range(8): pid = os.fork() or os.setsid() or bytearray(b'x') * (60 << 20)\ntime.sleep(600)",
            {"memory_bytes": 256 << 20},
        ),
    ],
    ids=["wall", "stopped", "cpu", "memory", "memory of the tree"],
)
def test_limits_end_it_with_all_its_processes(sandbox: Sandbox, limit: Limit, source: str, limits: dict) -> None:
    with sandbox.session(job(source, limits=limited(**limits))) as session:
        result = session.wait(FUSE)
        assert (result.limit, result.exit_code, result.signal) == (limit, None, None), result


def test_a_fork_bomb_has_an_end_and_harms_no_other_session(sandbox: Sandbox) -> None:
    bomb = "import os\nprint('begun', flush=True)\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    with sandbox.session(job(bomb, limits=limited(cpu_seconds=3.0, processes=64))) as session:
        assert line(session) == "begun"
        assert ran(sandbox, "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0); print('forked')")[1] == "forked\n"
        assert session.wait(FUSE).limit is Limit.CPU


def test_the_disk_is_bounded_also_by_number(sandbox: Sandbox) -> None:
    source = """
for path in ("/tmp/one", "/tmp/two", "/dev/shm/big", "big"):
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(15): file.write(bytes(1 << 18))
    except OSError as error: print(error.errno)
try:
    for n in range(300): open(f"/tmp/home/{n}", "w").close()
except OSError as error: print(error.errno)
"""
    result, output = ran(sandbox, source, limits=limited(disk_bytes=4 << 20, files=200))
    assert (result.exit_code, output) == (0, "28\n28\n28\n28\n"), result


# --- what cannot be had -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["landlock", "none"])
def test_other_levels_refuse_sessions(level: str) -> None:
    if level == "landlock":
        need(level)
    with (
        opened(level) if level == "landlock" else FakeSandbox() as sandbox,
        pytest.raises(SandboxError, match=rf"sessions need a sandbox of level namespaces, and this one is {level} .*install bubblewrap"),
    ):
        sandbox.session(job(""))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"readable": (Path("/var/tmp/nowhere"),)}, "the session's readable names '/var/tmp/nowhere', which is not a folder here"),
        ({"readable": (Path("/proc"),)}, r"the session's readable names '/proc', but programs cannot see .*; move the folder elsewhere"),
        ({"readable": (Path("/tmp"),)}, r"the session's readable names '/tmp', but programs cannot see"),
        ({"reach": Path("/var/tmp/nowhere.sock")}, "the session's reach names '/var/tmp/nowhere.sock', which is not a Unix socket here"),
    ],
)
def test_what_is_not_there_is_refused(sandbox: Sandbox, given: dict, words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        sandbox.session(job("", **given))


def test_files_that_do_not_fit_are_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="do not fit: disk_bytes is 4096"):
        sandbox.session(job("", files={"a": bytes(5000)}, limits=limited(disk_bytes=4096)))


def test_a_jail_that_cannot_be_built_says_why(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    real = session_module.boot_arguments
    monkeypatch.setattr(session_module, "boot_arguments", lambda folder, *rest: real("/nowhere", *rest))
    with pytest.raises(SandboxError, match=r"the session cannot be started: .*ModuleNotFoundError"):
        sandbox.session(job(""))
    monkeypatch.undo()
    monkeypatch.setattr(session_module, "_payload", lambda _: b"no marshal")
    with pytest.raises(SandboxError, match="the session cannot be started: jail: "):
        sandbox.session(job(""))


def test_hundreds_of_modules_fit_into_a_command_of_bubblewrap() -> None:
    modules = [f"/home/user/project/plugins/kind/name/tests/test_{number}.py" for number in range(2500)]
    words = bubblewrap.show((module, module) for module in modules)
    assert len(words) < 9000 - 500  # bubblewrap's limit, and what the rest of the command takes
    assert words.count("/home/user/project") == 1


# --- folders and terminals that an option asks for -------------------------------------------------------------------------------


TERMINALS = """
import fcntl, os, pty, sys
pairs = []
try:
    while len(pairs) < 40: pairs.append(pty.openpty())
except OSError as error: print(len(pairs), "pairs,", error)
if pairs:
    os.write(pairs[0][0], b"typed\\n"); print(os.read(pairs[0][1], 9))
    for request in (0x5423, 0x5412):
        try: fcntl.ioctl(pairs[0][1], request, b"\\0" * 8); print("a hole")
        except PermissionError: pass
for folder in ("/app", "/logs"):
    try:
        with open(folder + "/file", "wb", buffering=0) as file:
            for _ in range(20): file.write(bytes(1 << 20))
    except OSError as error: print(folder, error.errno)
"""


def test_a_session_has_folders_at_the_top_and_terminals_only_if_an_option_asks_for_them(sandbox: Sandbox) -> None:
    disk = limited(disk_bytes=8 << 20)
    assert ran(sandbox, TERMINALS, limits=disk)[1] == "0 pairs, out of pty devices\n/app 2\n/logs 2\n"
    options = {"session_folders": ("/app", "/logs"), "session_terminals": 3, "packages": ()}
    with opened("namespaces", backend_options=options) as other:
        for _ in range(2):  # nothing of the first session is in the second
            result, output = ran(other, TERMINALS, limits=disk)
            assert output == "3 pairs, out of pty devices\nb'typed\\n'\n/app 27\n/logs 28\n", result
        assert ran(other, "import os; print(sorted(os.listdir('/app')), os.getcwd())")[1] == "[] /tmp/workspace\n"
