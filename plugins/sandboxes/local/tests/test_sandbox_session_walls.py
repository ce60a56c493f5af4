"""What a session may not do: the ways out of programs, tried again in a session, and those that only a session has."""

from __future__ import annotations

import json
import os

import pytest
from kit_sandbox import FUSE, POSTAMBLE, PREAMBLE, Host
from kit_sessions import Gateway, job, line
from test_sandbox_walls import KERNEL, ROWS

from rlcore.api.sandbox import Sandbox


def attack(sandbox: Sandbox, body: str, given: dict, **more) -> str:
    source = PREAMBLE + "\n".join(f"    {line}" for line in body.strip().splitlines()) + POSTAMBLE
    with sandbox.session(job(source, **more)) as session:
        session.stdin.write(json.dumps(given).encode() + b"\n")
        output = session.stdout.read().decode()
        result = session.wait(FUSE)
        return output if result.ok else f"{output}{result}"


INSTEAD = {
    "opens_a_secret_by_a_handle_of_its_path": "attempt('O_PATH', os.open, H['secret'], os.O_PATH)",
    "reads_what_the_machine_is": """
for path in ('/etc/hostname', '/sys/kernel/mm/transparent_hugepage/enabled', '/var/lib/dpkg/status', '/etc/shadow', '/etc/resolv.conf'):
    attempt(path, lambda: open(path).read())
for path in ('/etc/passwd', '/etc/group', '/etc/hosts'):
    if len(open(path).read().splitlines()) > 2: hole(path)
""",
    "lists_what_the_machine_has": """
for path in ('/run', '/sys', '/sys/class/net', '/dev/pts', '/boot', '/proc/1/root', '/proc/1/cwd', '/proc/1/fd', '/proc/1/map_files'):
    attempt(path, os.listdir, path)
for path in ('/home', '/root', '/var', '/opt'):
    if os.path.exists(path): attempt(path, os.remove, path + '/x')
""",
    "reads_processes": """
if not {int(name) for name in os.listdir('/proc') if name.isdigit()} <= {1, os.getpid()}: hole('processes')
for name in ('environ', 'maps', 'mem', 'stack', 'auxv', 'syscall', 'io'):
    attempt(name, lambda: open(f'/proc/1/{name}', 'rb').read(64))
""",
    "tunes_the_kernel": """
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/self/setgroups', '/proc/1/oom_score_adj', '/proc/1/comm'):
    attempt(path, os.open, path, os.O_WRONLY)
def write(path, word=None):
    with open(path, 'r+b', buffering=0) as file: file.write(word or file.read(64))
attempt('safe from the kernel', write, '/proc/self/oom_score_adj', b'-1')
for folder, _, files in os.walk('/proc/sys'):
    for name in files: attempt(name, write, f'{folder}/{name}')
""",
    "signals_by_number": ROWS["signals_by_number"].replace("os.getppid() or H['host'], 2, 3", ""),
    "writes_around": ROWS["writes_around"].replace("/dev/shm ", ""),
    "makes_a_file_without_a_name": ROWS["makes_a_file_without_a_name"].replace("'/dev/shm', ", ""),
    "sends_datagrams": """
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for address in ('192.0.2.1', '10.0.0.1', '8.8.8.8'): attempt(address, udp.sendto, b'x', (address, 53))
""",
    "opens_odd_sockets": """
for family, kind, protocol in ((16, 3, 9), (16, 3, 15), (17, 3, 0), (40, 1, 0), (38, 5, 0), (31, 3, 0), (29, 3, 0), (44, 3, 0), (15, 2, 0)):
    attempt(family, socket.socket, family, kind, protocol)
for family in (2, 10):
    for kind, protocol in ((3, 0), (3, 1), (3, 255), (2, 1), (1, 132), (1, 262), (2, 33)):
        attempt(protocol, socket.socket, family, kind, protocol)
""",
}
OWN = {
    "resolves_names": """
for name in ('example.com', H['name']): attempt(name, socket.getaddrinfo, name, 80)
""",
    "reaches_the_internet": """
for address in ('1.1.1.1', '192.0.2.1', '10.0.0.1', '169.254.169.254'): attempt(address, socket.create_connection, (address, 80), 1)
attempt('IPv6', lambda: socket.socket(socket.AF_INET6).connect(('2606:4700::1111', 80)))
if [name for _, name in socket.if_nameindex()] != ['lo']: hole(socket.if_nameindex())
""",
    "reaches_another_port": """
for port in (H['port'], 22, 80, 7999, 8001): attempt(port, socket.create_connection, ('127.0.0.1', port), 1)
""",
    "reaches_the_server_by_its_own_path": """
attempt('path', lambda: socket.socket(socket.AF_UNIX).connect(H['gateway']))
for fd in range(100): attempt(fd, lambda: socket.socket(socket.AF_UNIX).connect(f'/proc/1/fd/{fd}'))
socket.create_connection(('127.0.0.1', 8000)).close()
""",
    "changes_the_network": """
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt('down', fcntl.ioctl, control, 0x8914, struct.pack('16sh', b'lo', 0))
attempt('address', fcntl.ioctl, control, 0x8916, struct.pack('16sHHI8s', b'lo', 2, 0, 0x0A000001, b''))
for option in (7, 8, 25, 26, 32, 33, 36, 50, 51): attempt(option, control.setsockopt, 1, option, 8)
""",
    "ends_the_supervisor": """
for number in signal.Signals:
    try: os.kill(1, number)
    except PermissionError: pass
attempt('pidfd', lambda: syscall(438, os.pidfd_open(1), 0, 0))
attempt('limit', resource.prlimit, 1, resource.RLIMIT_CPU, (1, 1))
attempt('affinity', os.sched_setaffinity, 1, {0})
attempt('scheduler', os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
for which in (os.PRIO_PROCESS, os.PRIO_PGRP, os.PRIO_USER): attempt('priority', os.setpriority, which, 0 if which else 1, 19)
attempt('ptrace', libc.ptrace, 16, 1, None, None)
attempt('ptrace', libc.ptrace, 0x4206, 1, None, None)
import time
for _ in range(3): time.sleep(0.3); os.kill(os.getpid(), 0)
socket.create_connection(('127.0.0.1', 8000)).close()
""",
    "changes_what_it_only_reads": """
for path in (sys.prefix, os.path.dirname(os.__file__), sys.executable, '/etc/passwd', '/python', '/jail'):
    attempt(path, os.chmod, path, 0o777)
    attempt(path, os.rename, path, path + '.x')
    attempt(path, os.utime, path)
attempt('lock', lambda: fcntl.flock(os.open(sys.prefix + '/pyvenv.cfg', 0), fcntl.LOCK_EX))
attempt('watch', libc.inotify_init1, 0)
""",
}
ROOT_MAY = {"lists_what_the_machine_has", "reaches_into_processes", "reads_processes", "tunes_the_kernel", "takes_leases"}
"""Rows about files of root, which a session of another user must not open: as root, the same user may."""
ALL = {**ROWS, **INSTEAD, **OWN, "KERNEL": KERNEL}


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_the_machine_can_be_reached(
    walled: Sandbox, host: Host, gateway: Gateway, name: str, request: pytest.FixtureRequest
) -> None:
    if name in ROOT_MAY and "the same user" in request.node.name and os.getuid() == 0:
        pytest.skip("root is no user like others")
    given = {**host.given, "gateway": str(gateway.path), "name": os.uname().nodename}
    assert attack(walled, ALL[name], given, reach=gateway.path) == "END\n"


def test_nothing_can_be_reached_without_an_address(sandbox: Sandbox) -> None:
    assert attack(sandbox, "attempt('port', socket.create_connection, ('127.0.0.1', 8000), 1)", {}) == "END\n"


def test_sessions_do_not_see_each_other(walled: Sandbox, gateway: Gateway) -> None:
    first = """
import os, socket, time
unix, abstract, tcp = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 9000))
unix.bind("/tmp/unix"); unix.listen(); abstract.bind("\\0rlcore-test-session"); abstract.listen(); open("/dev/shm/x", "w").close()
open("/tmp/mine", "w").close(); open("mine", "w").close()
print(os.getpid(), flush=True)
input()
print("still here")
"""
    second = """
attempt('tcp', socket.create_connection, ('127.0.0.1', 9000), 1)
for address in ('/tmp/unix', '\\0rlcore-test-session'): attempt(address, lambda: socket.socket(socket.AF_UNIX).connect(address))
for path in ('/tmp/mine', 'mine', '/dev/shm/x', '/tmp/workspace/mine'): attempt(path, open, path)
for pid in range(1, 200):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
try: os.kill(-1, signal.SIGKILL)
except OSError: pass
"""
    with walled.session(job(first, reach=gateway.path)) as session:
        assert line(session).isdigit()
        assert attack(walled, second, {}, reach=gateway.path) == "END\n"
        session.stdin.write(b"\n")
        assert line(session) == "still here"
        assert session.wait(FUSE).ok
