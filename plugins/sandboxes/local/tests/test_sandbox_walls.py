"""What a program may not do. Each row tries one way out and says HOLE where it is open; at level none most rows must say so, which shows
that the rows see what they look for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit_sandbox import opened

FILES = {
    "reads_a_secret": "attempt('read', lambda: open(H['secret']).read())",
    "reads_a_secret_in_c": "attempt('read', libc.open, H['secret'].encode(), 0)",
    "reads_a_secret_by_link": "os.symlink(H['secret'], 'link'); attempt('link', lambda: open('link').read())",
    "links_a_secret": """
hard = H['folder'] + '/hard'  # on the file system of the secret
attempt('hard link', os.link, H['secret'], hard)
attempt('unlink', os.unlink, hard)
""",
    "opens_a_secret_by_its_folder": """
d = os.open('/', os.O_PATH)
attempt('openat', lambda: os.open(H['secret'][1:], os.O_RDONLY, dir_fd=d))
""",
    "opens_a_secret_by_openat2": """
how = ctypes.create_string_buffer(struct.pack('QQQ', 0, 0, 0), 24)
attempt('openat2', syscall, 437, -100, ctypes.c_char_p(H['secret'].encode()), how, 24)
""",
    "opens_a_secret_by_a_handle_of_its_path": """
fd = os.open(H['secret'], os.O_PATH)
attempt('O_PATH', lambda: open(f'/proc/self/fd/{fd}').read())
""",
    "lists_a_folder": "attempt('list', os.listdir, H['folder'])",
    "writes_a_secret": "attempt('append', lambda: open(H['secret'], 'a'))",
    "truncates_a_secret": "attempt('truncate', libc.truncate, H['secret'].encode(), 6)",
    "truncates_by_reading": "attempt('O_TRUNC', lambda: os.open(H['secret'], os.O_RDONLY | os.O_TRUNC))",
    "makes_a_file": "attempt('create', lambda: open(H['folder'] + '/made', 'w'))",
    "makes_a_folder": "attempt('mkdir', os.mkdir, H['folder'] + '/made.d')",
    "renames_a_secret": """
mine = H['folder'] + '/mine'
attempt('rename', os.rename, H['secret'], mine)
attempt('back', os.rename, mine, H['secret'])
""",
    "changes_modes": "attempt('chmod', os.chmod, H['secret'], 0o666)",
    "changes_owners": "attempt('chown', os.chown, H['secret'], os.getuid(), os.getgid())",
    "changes_times": "attempt('utime', os.utime, H['secret'])",
    "changes_attributes": "attempt('setxattr', os.setxattr, H['secret'], 'user.x', b'x')",
    "makes_a_socket_file": """
def bind():
    with socket.socket(socket.AF_UNIX) as s: s.bind(H['folder'] + '/sock')
attempt('bind', bind)
""",
    "makes_a_device": "attempt('mknod', os.mknod, 'disk', 0o60600, os.makedev(8, 0))",
    "reads_what_the_machine_is": """
for path in ('/etc/passwd', '/etc/hostname', '/etc/hosts', '/sys/kernel/mm/transparent_hugepage/enabled', '/var/lib/dpkg/status'):
    attempt(path, lambda: open(path).read())
""",
    "lists_what_the_machine_has": """
for path in ('/home', '/root', '/var', '/run', '/sys', '/sys/class/net', '/dev/pts', '/opt', '/boot'):
    attempt(path, os.listdir, path)
""",
    "reads_processes": """
for pid in ('self', '1', H['victim'], H['host'], os.getppid()):
    for name in ('cmdline', 'environ', 'maps', 'mem', 'status', 'stat', 'mountinfo', 'net/tcp', 'net/unix', 'fdinfo/0', 'stack'):
        attempt(name, lambda: open(f'/proc/{pid}/{name}', 'rb').read(64))
""",
    "reaches_into_processes": """
for pid in (H['victim'], H['host'], os.getppid() or 1):
    for name in ('exe', 'cwd', 'root', 'fd/0', 'ns/mnt'):
        attempt(name, os.readlink, f'/proc/{pid}/{name}')
        attempt(name, os.open, f'/proc/{pid}/{name}', os.O_RDONLY | os.O_NONBLOCK)
    attempt('fd', os.listdir, f'/proc/{pid}/fd')
""",
    "tunes_the_kernel": """
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/self/oom_score_adj', '/proc/self/setgroups'):
    attempt(path, os.open, path, os.O_WRONLY)
""",
    "finds_other_descriptors": """
for fd in range(3, 1024):
    try: os.fstat(fd); hole('descriptor', fd)
    except OSError: pass
""",
    "writes_around": """
around = '/ /etc /usr /usr/lib /usr/local /bin /var/tmp /dev/shm /dev /run /home /root /proc /proc/self/fd /sys /jail'.split()
for path in around + [os.path.dirname(os.__file__), os.path.dirname(os.__file__) + '/site-packages'] + sys.path:
    if path in ('', '/tmp', os.getcwd()): continue
    name = f'{path}/rlcore-test-{os.getpid()}'
    try: os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.unlink(name); hole(path)
    except OSError: pass
""",
    "makes_a_file_without_a_name": """
for path in ('/usr', '/dev/shm', '/', H['folder'], '/usr/lib'):
    attempt(path, os.open, path, os.O_TMPFILE | os.O_RDWR)
""",
    "locks_files_of_the_machine": "attempt('flock', lambda: fcntl.flock(os.open('/bin/sh', 0), fcntl.LOCK_EX | fcntl.LOCK_NB))",
    "writes_its_input": """
attempt('write', os.pwrite, 0, b'x', 0)
attempt('grow', os.ftruncate, 0, 1 << 20)
attempt('again', lambda: os.pwrite(os.open('/proc/self/fd/0', os.O_RDWR), b'x', 0))
""",
    "takes_leases": "attempt('lease', lambda: fcntl.fcntl(os.open('/bin/sh', 0), fcntl.F_SETLEASE, fcntl.F_RDLCK))",
}

SOCKETS = {
    "reaches_the_network": "attempt('tcp', socket.create_connection, ('127.0.0.1', H['port']), 1)",
    "sends_datagrams": """
def send(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', H['port']))
attempt('udp', send)
""",
    "reaches_a_socket_file": "attempt('stream', lambda: socket.socket(socket.AF_UNIX).connect(H['stream']))",
    "reaches_an_abstract_socket": "attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect(H['abstract']))",
    "turns_a_pair_round": """
for name in ('datagram', 'abstract_datagram'):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    attempt(name, lambda: a.sendto(b'x', H[name]))
    attempt(name, lambda: a.sendmsg([b'x'], [], 0, H[name]))
    attempt(name, lambda: a.connect(H[name]))
""",
    "turns_a_stream_round": """
a, b = socket.socketpair()
b.close()
attempt('stream', lambda: a.connect(H['stream']))
attempt('listen', lambda: a.listen())
""",
    "opens_odd_sockets": """
for family, kind in ((16, 3), (17, 3), (40, 1), (38, 5), (31, 3), (29, 3), (44, 3), (15, 2), (2, 3), (10, 3)):
    attempt(family, socket.socket, family, kind)
for protocol in (132, 262, 33): attempt(protocol, socket.socket, 2, 1, protocol)
""",
}

OTHERS = {
    "signals_by_number": """
for pid in {H['victim'], H['host'], os.getppid() or H['host'], 2, 3} - {os.getpid()}:
    attempt('kill', os.kill, pid, 0)
    attempt('tkill', syscall, {'x86_64': 200}.get(os.uname().machine, 130), pid, 0)
    attempt('tgkill', syscall, {'x86_64': 234}.get(os.uname().machine, 131), pid, pid, 0)
""",
    "queues_signals": """
info = ctypes.create_string_buffer(struct.pack('iii', 0, 0, -1), 128)
for pid in (H['victim'], H['host']):
    attempt('queue', syscall, {'x86_64': 129}.get(os.uname().machine, 138), pid, 0, info)
    attempt('queue', syscall, {'x86_64': 297}.get(os.uname().machine, 240), pid, pid, 0, info)
    fd = -1
    try: fd = os.pidfd_open(pid); hole('pidfd')
    except OSError: pass
    if fd >= 0: attempt('pidfd', signal.pidfd_send_signal, fd, 0)
""",
    "signals_by_descriptor": """
read, write = os.pipe()
attempt('F_SETOWN', fcntl.fcntl, read, 8, H['victim'])
attempt('F_SETOWN', fcntl.fcntl, read, 8, -H['victim'])
attempt('F_SETOWN_EX', fcntl.fcntl, read, 15, struct.pack('ii', 1, H['victim']))
a, b = socket.socketpair()
for request in (0x8901, 0x8902): attempt('ioctl', fcntl.ioctl, a, request, struct.pack('i', H['victim']))
""",
    "turns_limits_of_others": "for pid in (H['victim'], H['host']): attempt('prlimit', resource.prlimit, pid, resource.RLIMIT_CORE)",
    "schedules_others": """
for pid in (H['victim'], H['host']):
    attempt('priority', os.setpriority, os.PRIO_PROCESS, pid, 0)
    attempt('affinity', os.sched_setaffinity, pid, os.sched_getaffinity(0))
    attempt('ioprio', syscall, {'x86_64': 251}.get(os.uname().machine, 30), 1, pid, 0)
""",
    "traces_others": """
for pid in (H['victim'], os.getppid() or 1):
    attempt('ptrace', libc.ptrace, 0x4206, pid, None, None)
data = ctypes.create_string_buffer(8)
vector = struct.pack('PN', ctypes.addressof(data), 8)
attempt('vm', syscall, {'x86_64': 310}.get(os.uname().machine, 270), os.getpid(), vector, 1, vector, 1, 0)
""",
    "attaches_shared_memory": """
attempt('shmget', libc.shmget, H['key'], 0, 0)
libc.shmat.restype = ctypes.c_long
attempt('shmat', libc.shmat, H['shm'], None, 0)
""",
    "opens_shared_memory": "attempt('shm', lambda: open(H['posix']).read())",
    "makes_shared_memory": """
segment, queue, semaphore = libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)
if segment >= 0: hole('segment', libc.shmctl(segment, 0, None))
if queue >= 0: hole('queue', libc.msgctl(queue, 0, None))
if semaphore >= 0: hole('semaphore', libc.semctl(semaphore, 0, 0))
""",
    "takes_huge_pages": "attempt('mmap', lambda: mmap.mmap(-1, 1 << 21, flags=0x40022))",
    "makes_files_in_memory": "attempt('memfd', lambda: os.memfd_create('x'))",
    "raises_limits": """
for name in ('AS', 'CPU', 'NPROC', 'FSIZE', 'NOFILE', 'CORE', 'MEMLOCK'):
    which = getattr(resource, 'RLIMIT_' + name)
    soft, hard = resource.getrlimit(which)
    if hard == -1: hole(name, 'unlimited')
    attempt(name, resource.setrlimit, which, (hard + 1, hard + 1))
""",
    "regains_capabilities": """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
libc.capget(header, data)
if any(data[:6]): hole('capabilities', list(data))
if libc.prctl(39, 0, 0, 0, 0) != 1: hole('new privileges')
""",
}

KERNEL = """
table = {'x86_64': 0}.get(os.uname().machine, 1)
calls = {
    'unshare': (272, 97), 'setns': (308, 268), 'mount': (165, 40), 'umount2': (166, 39), 'pivot_root': (155, 41), 'chroot': (161, 51),
    'bpf': (321, 280), 'perf_event_open': (298, 241), 'userfaultfd': (323, 282), 'io_uring_setup': (425, 425), 'io_setup': (206, 0),
    'add_key': (248, 217), 'request_key': (249, 218), 'keyctl': (250, 219), 'fsopen': (430, 430), 'open_tree': (428, 428),
    'statmount': (457, 457), 'listmount': (458, 458), 'open_tree_attr': (467, 467), 'memfd_secret': (447, 447), 'kcmp': (312, 272),
    'process_madvise': (440, 440), 'init_module': (175, 105), 'kexec_load': (246, 104), 'reboot': (169, 142), 'seccomp': (317, 277),
    'landlock_create_ruleset': (444, 444), 'name_to_handle_at': (303, 264), 'quotactl': (179, 60), 'syslog': (103, 116),
    'fanotify_init': (300, 262), 'inotify_init1': (294, 26), 'clone3': (435, 435), 'personality': (135, 92), 'vmsplice': (278, 75),
    'a call of tomorrow': (1000, 1000),
}
for name, numbers in calls.items():
    error = -syscall(numbers[table], -1, -1, -1, -1, -1)
    if error not in (errno.EPERM, errno.ENOSYS): hole(name, error)
for flags in (0x10000000, 0x20000, 0x40000000, 0x20000000):
    error = -syscall((56, 220)[table], flags | 17, 0, 0, 0, 0)
    if error == 0: os._exit(0)
    if error != errno.EPERM: hole('clone', hex(flags), error)
"""

# Closed at level none as well: no huge pages are kept, limits are hard, descriptors closed, the input sealed, streams stay streams.
CLOSED_ANYWAY = {"takes_huge_pages", "writes_its_input", "raises_limits", "finds_other_descriptors", "turns_a_stream_round"}
NEED_ROOT = {"makes_a_device", "takes_leases"}
ROWS = {**FILES, **SOCKETS, **OTHERS}


@pytest.mark.parametrize("name", ROWS)
def test_nothing_of_the_machine_can_be_reached(box, host, name: str) -> None:
    ran = host.attack(box, ROWS[name])
    assert ran.stdout == b"END\n", ran


def test_the_kernel_refuses_what_no_program_needs(box, host) -> None:
    ran = host.attack(box, KERNEL)
    assert ran.stdout == b"END\n", ran


def test_the_secret_is_untouched_and_nothing_knocked(box, host) -> None:
    for name in ("writes_a_secret", "truncates_a_secret", "truncates_by_reading", "renames_a_secret"):
        host.attack(box, ROWS[name])
    assert Path(host.given["secret"]).read_text() == "s3cr3t"
    assert sorted(path.name for path in Path(host.given["folder"]).iterdir()) == ["datagram", "secret", "stream"]


@pytest.mark.full
@pytest.mark.parametrize("name", [*sorted(ROWS.keys() - CLOSED_ANYWAY), "KERNEL"])
def test_the_row_sees_a_hole_where_there_is_no_wall(host, name: str) -> None:
    if os.getuid() != 0 and name in NEED_ROOT:
        pytest.skip("without walls, too, only root may do this")
    with opened("none") as box:
        ran = host.attack(box, ROWS.get(name, KERNEL))
    assert b"HOLE" in ran.stdout, ran
