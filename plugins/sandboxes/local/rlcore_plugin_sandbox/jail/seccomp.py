"""The system call filter: a BPF program that refuses calls which escapes need and contest programs do not.

Both levels refuse calls that reach the kernel, other processes' memory, mounts, namespaces or other users, and memory that no process limit
counts. Level landlock has neither a process nor a network namespace. So there the filter also refuses processes, sockets, every way to
signal other processes, and changes of files' metadata, which Landlock does not cover. A session may use TCP and UDP in its own network
namespace, and handle SIGCHLD.
"""

from __future__ import annotations

import ctypes
import errno
import signal
import struct

from rlcore_plugin_sandbox.jail.syscalls import machine, number

__all__ = ["COMMON", "LANDLOCK_TOO", "bpf", "install", "install_session", "session_bpf"]


def _words(text: str) -> list[str]:
    return text.split()


COMMON = _words("""
ptrace process_vm_readv process_vm_writev kcmp process_madvise userfaultfd io_uring_setup io_uring_enter io_uring_register bpf
perf_event_open add_key request_key keyctl mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick
mount_setattr setns unshare open_by_handle_at name_to_handle_at init_module finit_module delete_module kexec_load kexec_file_load reboot
swapon swapoff acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname syslog vhangup iopl
ioperm personality modify_ldt setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset fanotify_init
fanotify_mark lookup_dcookie nfsservctl landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp memfd_secret mbind
migrate_pages move_pages set_mempolicy vmsplice uselib ustat sysfs _sysctl create_module get_kernel_syms query_module shmget shmat
shmctl shmdt msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr memfd_create semget
semop semctl semtimedop io_setup statmount listmount lsm_set_self_attr sync syncfs flock inotify_init inotify_init1 inotify_add_watch
""")

LANDLOCK_TOO = _words("""
fork vfork socket setsid setpgid sched_setaffinity sched_setparam sched_setscheduler sched_setattr setpriority ioprio_set chmod fchmod
fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr
fremovexattr setxattrat removexattrat pidfd_open pidfd_getfd pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo timer_create truncate
fallocate bind connect listen accept accept4 sendmsg sendmmsg
""")

_ABSENT_IN_SESSIONS = _words("flock inotify_init inotify_init1 inotify_add_watch")
"""Calls that would reach other programs through files which all of them can read. Agent programs often do without a call that the kernel
does not have, but not without one that is refused. The supervisor answers flock if it can (``file_locks``)."""
_SUPERVISOR_STAYS = _words("sched_setaffinity sched_setparam sched_setscheduler sched_setattr")

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _NOTIFY = 0x7FFF0000, 0x80000000, 0x7FC00000
_NR, _ARCH, _ARGUMENTS = 0, 4, (16, 24, 32, 40)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_FROM_HERE = 467  # system calls of Linux 6.15 and later, some of them for mounts and file attributes; the C library does not need them
_LOCAL = 1  # AF_UNIX; other families reach nothing in a network namespace, and would load protocols into the kernel
_STREAMS = (1, 0x801, 0x80001, 0x80801)  # SOCK_STREAM with or without NONBLOCK, CLOEXEC: a datagram socket can name another receiver
_PRCTLS = (1, 4, 35, 0x59616D61)  # PDEATHSIG, DUMPABLE, MM, PTRACER
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032, 1034)  # descriptors, flags, record locks; no owners, signals, leases, larger pipes
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # whether it is a terminal, its size; FIONREAD, FIONBIO, FIO(N)CLEX
_TIOCSETD, _TIOCSTI = 0x5423, 0x5412  # another line discipline would load a module into the kernel; words typed for another process
_SOL_SOCKET, _SOCKET_OPTIONS = 1, (2, 9, 13, 15, 16, 20, 21, 66, 67)  # REUSEADDR, KEEPALIVE, LINGER, REUSEPORT, PASSCRED, timeouts
_F_GETLK, _F_OFD_LOCKS = 5, (36, 37, 38)
_FCNTLS_REFUSED = (1031, 1024, 1026)  # SETPIPE_SZ; SETLEASE and NOTIFY, which watch files that other programs can read
_NETLINK, _ROUTE = 16, 0
_FAMILIES = {_LOCAL: (0,), 2: (0, 6, 17), 10: (0, 6, 17), _NETLINK: (_ROUTE,)}
"""Families of a session's sockets (Unix, IPv4, IPv6, and the list of network interfaces), with their protocols (TCP, UDP). Other protocols
would load modules into the kernel."""
_SESSION_OPTIONS = {_SOL_SOCKET: (*_SOCKET_OPTIONS, 6), 6: (1, 4, 5, 6, 9, 12, 18), 41: (25, 26), 0: (1, 11)}
"""Options of a session's sockets by level: BROADCAST; TCP's NODELAY, keepalive times, DEFER_ACCEPT, QUICKACK, USER_TIMEOUT; IPv6's RECVERR
and V6ONLY; IP's TOS and RECVERR."""
_O_TRUNC, _O_ACCMODE = 0o1000, 0o3
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x1, 0x20, 0x40000
_RLIMIT_CPU = 0
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8

_Code = list[tuple[int, int, int, int]]


def bpf(*, landlock: bool, pid: int, of_machine: str | None = None) -> bytes:
    """Return the filter of programs in the kernel's format, eight bytes an instruction. ``pid``: the process that may signal itself (level
    landlock)."""
    name = of_machine or machine()
    code = _first(name, landlock=landlock)
    # Refuse larger buffers and filters: they use kernel memory, which only the machine's settings would limit.
    code += _only(name, "setsockopt", [*_unless(_SOL_SOCKET, argument=1), *_allow(_SOCKET_OPTIONS, argument=2)])
    if landlock:
        for call, which in (("kill", 1), ("tkill", 1), ("tgkill", 2)):
            # SIGKILL is refused even to itself, so a process that ends that way was killed from outside, which is not a verdict.
            code += _only(name, call, [*_not(which, signal.SIGKILL), *_allow((pid,))])
        code += _only(name, "prlimit64", [*_cpu_limit_stays(), *_allow((0, pid))])
        code += _only(name, "prctl", _refuse(_PRCTLS))
        code += _only(name, "fcntl", _allow(_FCNTLS, argument=1))
        code += _only(name, "ioctl", _allow(_IOCTLS, argument=1))
        code += _only(name, "socketpair", [*_unless(_LOCAL), *_allow(_STREAMS, argument=1)])
        # Before Linux 6.2 Landlock lets a process truncate a read-only file by opening it.
        code += _only(name, "open", _masked(1, _O_TRUNC | _O_ACCMODE, _O_TRUNC))
        code += _only(name, "openat", _masked(2, _O_TRUNC | _O_ACCMODE, _O_TRUNC))
        code += _only(name, "openat2", [(_RETURN, 0, 0, _errno(errno.ENOSYS))])  # its flags are in memory
    else:
        code += _only(name, "rt_sigaction", _children_are_waited_for())
        code += _only(name, "prlimit64", [*_cpu_limit_stays(), (_RETURN, 0, 0, _ALLOW)])
        code += _only(name, "socket", _allow((_LOCAL,)))
        code += _only(name, "socketpair", _allow((_LOCAL,)))
        code += _only(name, "fcntl", _refuse(_FCNTLS_REFUSED, argument=1))
    code += _only(name, "setrlimit", _refuse((_RLIMIT_CPU,)))
    return _last(name, code, COMMON + (LANDLOCK_TOO if landlock else []))


def session_bpf(of_machine: str | None = None, *, locks: bool = False) -> bytes:
    """Return the filter of sessions. Their processes may change themselves, but not process 1, which supervises them and may have the same
    user. ``locks``: the filter hands calls of ``flock`` and F_GETLK to the supervisor; else the first do not exist, and the second pass."""
    name = of_machine or machine()
    code = _first(name, landlock=False)
    options = [step for level, values in _SESSION_OPTIONS.items() for step in _in_case(1, level, _allow(values, argument=2))]
    code += _only(name, "setsockopt", [*options, _REFUSED])
    families = [step for family, protocols in _FAMILIES.items() for step in _in_case(0, family, _allow(protocols, argument=2))]
    code += _only(name, "socket", [*families, (_RETURN, 0, 0, _errno(errno.EAFNOSUPPORT))])
    code += _only(name, "socketpair", _allow((_LOCAL,)))
    # All sessions of the machine see the locks of descriptors in /proc/locks. Programs do without them, as before Linux 3.15.
    locking = [step for command in _F_OFD_LOCKS for step in _in_case(1, command, [(_RETURN, 0, 0, _errno(errno.EINVAL))])]
    if locks:
        locking += _in_case(1, _F_GETLK, [(_RETURN, 0, 0, _NOTIFY)])
    code += _only(name, "fcntl", [*locking, *_refuse(_FCNTLS_REFUSED, argument=1)])
    code += _only(name, "ioctl", _refuse((_TIOCSETD, _TIOCSTI), argument=1))
    code += _only(name, "prlimit64", _allow((0,)))
    for call in _SUPERVISOR_STAYS:
        code += _only(name, call, _refuse((1,)))
    if locks:
        code += _only(name, "flock", [(_RETURN, 0, 0, _NOTIFY)])
    for call in _ABSENT_IN_SESSIONS:
        code += _only(name, call, [(_RETURN, 0, 0, _errno(errno.ENOSYS))])
    return _last(name, code, [*COMMON, "setpriority", "ioprio_set"])


def _first(name: str, *, landlock: bool) -> _Code:
    """Return the code that every filter begins with; it refuses calls of other machines, calls that are too new, and namespaces."""
    code: _Code = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQ, 1, 0, _AUDIT_ARCH[name]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    if name == "x86_64":
        code += [(_JUMP_GE, 0, 1, _X32), _REFUSED]
    code += [(_JUMP_GE, 0, 1, _FROM_HERE), (_RETURN, 0, 0, _errno(errno.ENOSYS))]
    code += _only(name, "clone3", [(_RETURN, 0, 0, _errno(errno.ENOSYS))])  # its flags are in memory; the C library falls back on clone
    code += _only(name, "clone", _clone(landlock))
    return code + _only(name, "mmap", _mmap())


def _last(name: str, code: _Code, refused: list[str]) -> bytes:
    """Return the whole filter: the code, then the refused calls; everything else is allowed."""
    for call in refused:
        code += _only(name, call, [_REFUSED])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in code)


def install(program: bytes) -> None:
    """Apply the filter to this process and its children for good. no_new_privs must be set; raise OSError if the kernel refuses."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if library.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused")


def install_session() -> int:
    """Apply the filter of sessions to this process and its children for good. Return a descriptor that tells calls of ``flock``, -1 if this
    system offers none. See ``install``."""
    library, rules = ctypes.CDLL(None, use_errno=True), session_bpf(locks=True)
    buffer = ctypes.create_string_buffer(rules, len(rules))
    header = struct.pack("HxxxxxxP", len(rules) // 8, ctypes.addressof(buffer))
    told = int(library.syscall(number("seccomp", machine()), _SET_MODE_FILTER, _NEW_LISTENER, ctypes.c_char_p(header)))
    if told < 0:  # before Linux 5.0, or in a container that has such a filter
        install(session_bpf())
    return told


def _errno(code: int) -> int:
    return 0x00050000 | code


def _only(name: str, call: str, body: _Code) -> _Code:
    """Return code that runs ``body``, which must return, if the system call is this one."""
    wanted = number(call, name)
    return [] if wanted is None else [(_JUMP_EQ, 0, len(body), wanted), *body]


_REFUSED = (_RETURN, 0, 0, _errno(errno.EPERM))


def _in_case(argument: int, value: int, body: _Code) -> _Code:
    """Return code that runs ``body``, which must return, if the argument has this value."""
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), (_JUMP_EQ, 0, len(body), value), *body]


def _clone(landlock: bool) -> _Code:
    refuse = (_RETURN, 0, 0, _errno(errno.EPERM))
    code: _Code = [(_LOAD, 0, 0, _ARGUMENTS[0]), (_JUMP_SET, 0, 1, _NAMESPACE_FLAGS), refuse]
    if landlock:  # only a thread that shares all descriptors, because those of the process are counted
        needed = _CLONE_THREAD | _CLONE_FILES
        code += [(_AND, 0, 0, needed), (_JUMP_EQ, 1, 0, needed), refuse]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _mmap() -> _Code:
    """Refuse huge pages, which the machine keeps for others, and shared memory without a file, which a process can drop from its resident
    size and still keep."""
    huge: _Code = [(_LOAD, 0, 0, _ARGUMENTS[3]), (_JUMP_SET, 0, 1, _MAP_HUGETLB), (_RETURN, 0, 0, _errno(errno.EPERM))]
    shared = _MAP_SHARED | _MAP_ANONYMOUS
    return huge + _masked(3, shared, shared)


def _children_are_waited_for() -> _Code:
    """Ignore a program's new handler for SIGCHLD: the kernel forgets the CPU time of children whose parent ignores the signal. Allow
    reading the handler."""
    ignore = (_RETURN, 0, 0, _errno(0))
    new = _ARGUMENTS[1]
    low = [(_LOAD, 0, 0, new), (_JUMP_EQ, 1, 0, 0), ignore]
    high = [(_LOAD, 0, 0, new + 4), (_JUMP_EQ, 1, 0, 0), ignore]
    return [(_LOAD, 0, 0, _ARGUMENTS[0]), (_JUMP_EQ, 0, 6, signal.SIGCHLD), *low, *high, (_RETURN, 0, 0, _ALLOW)]


def _allow(values: tuple[int, ...], argument: int = 0) -> _Code:
    """Allow the call only if that argument has one of these values."""
    return _compare(argument, values, _ALLOW, _errno(errno.EPERM))


def _refuse(values: tuple[int, ...], argument: int = 0) -> _Code:
    """Refuse the call if that argument has one of these values."""
    return _compare(argument, values, _errno(errno.EPERM), _ALLOW)


def _unless(value: int, argument: int = 0) -> _Code:
    """Refuse the call unless that argument has this value; then continue with the next instruction."""
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), (_JUMP_EQ, 1, 0, value), (_RETURN, 0, 0, _errno(errno.EPERM))]


def _not(argument: int, value: int) -> _Code:
    """Refuse the call if that argument has this value; otherwise continue with the next instruction."""
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), (_JUMP_EQ, 0, 1, value), (_RETURN, 0, 0, _errno(errno.EPERM))]


def _cpu_limit_stays() -> _Code:
    """Refuse a new CPU limit, because with a lower one the program could kill itself with SIGKILL. Continue for other limits, and if the
    call only reads."""
    refuse = (_RETURN, 0, 0, _errno(errno.EPERM))
    new = _ARGUMENTS[2]
    low = [(_LOAD, 0, 0, new), (_JUMP_EQ, 1, 0, 0), refuse]
    high = [(_LOAD, 0, 0, new + 4), (_JUMP_EQ, 1, 0, 0), refuse]
    return [(_LOAD, 0, 0, _ARGUMENTS[1]), (_JUMP_EQ, 0, 6, _RLIMIT_CPU), *low, *high]


def _masked(argument: int, mask: int, value: int) -> _Code:
    """Refuse the call if these bits of that argument have this value."""
    refuse = (_RETURN, 0, 0, _errno(errno.EPERM))
    return [(_LOAD, 0, 0, _ARGUMENTS[argument]), (_AND, 0, 0, mask), (_JUMP_EQ, 0, 1, value), refuse, (_RETURN, 0, 0, _ALLOW)]


def _compare(argument: int, values: tuple[int, ...], hit: int, miss: int) -> _Code:
    """Compare the lower half of the argument, which is the whole of an int, with each value."""
    code: _Code = [(_LOAD, 0, 0, _ARGUMENTS[argument])]
    for value in values:
        code += [(_JUMP_EQ, 0, 1, value), (_RETURN, 0, 0, hit)]
    return [*code, (_RETURN, 0, 0, miss)]
