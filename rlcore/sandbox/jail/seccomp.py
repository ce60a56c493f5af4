"""The system call filter: a BPF program that refuses what no contest program needs and every escape does.

Both levels refuse what reaches for the kernel, other processes' memory, mounts, namespaces or other users, and memory that no process
limit counts. Level landlock has neither a process nor a network namespace, so there it also refuses processes, sockets, every way to
signal others, and changes of files' metadata, which Landlock does not cover.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from rlcore.sandbox.jail.syscalls import machine, number

__all__ = ["COMMON", "LANDLOCK_TOO", "bpf", "install"]


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
semop semctl semtimedop
""")

LANDLOCK_TOO = _words("""
fork vfork socket setsid setpgid sched_setaffinity sched_setparam sched_setscheduler sched_setattr setpriority ioprio_set chmod fchmod
fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr
fremovexattr setxattrat removexattrat file_setattr inotify_init inotify_init1 inotify_add_watch pidfd_open pidfd_getfd pidfd_send_signal
rt_sigqueueinfo rt_tgsigqueueinfo truncate
""")

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NR, _ARCH, _ARGUMENTS = 0, 4, (16, 24)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}
_CLONE_THREAD = 0x10000
_NETWORKS = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_PRCTLS = (1, 35, 0x59616D61)  # PDEATHSIG, MM, PTRACER
_FCNTLS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals to whoever owns a descriptor
_IOCTLS = (0x8901, 0x8902, 0x5412)  # FIOSETOWN, SIOCSPGRP, TIOCSTI
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_Code = list[tuple[int, int, int, int]]


def bpf(*, landlock: bool, pid: int, of_machine: str | None = None) -> bytes:
    """The filter as the kernel reads it, eight bytes an instruction. ``pid``: the process that may signal itself (level landlock)."""
    name = of_machine or machine()
    code: _Code = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQ, 1, 0, _AUDIT_ARCH[name]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    if name == "x86_64":
        code += [(_JUMP_GE, 0, 1, _X32), (_RETURN, 0, 0, _errno(errno.EPERM))]
    code += _only(name, "clone3", [(_RETURN, 0, 0, _errno(errno.ENOSYS))])  # its flags lie in memory; the C library falls back on clone
    code += _only(name, "clone", _clone(landlock))
    if landlock:
        for call in ("kill", "tkill", "tgkill"):
            code += _only(name, call, _allow((pid,)))
        code += _only(name, "prlimit64", _allow((0, pid)))
        code += _only(name, "prctl", _refuse(_PRCTLS))
        code += _only(name, "fcntl", _refuse(_FCNTLS, argument=1))
        code += _only(name, "ioctl", _refuse(_IOCTLS, argument=1))
    else:
        code += _only(name, "socket", _allow(_NETWORKS))
        code += _only(name, "socketpair", _allow(_NETWORKS))
    for call in COMMON + (LANDLOCK_TOO if landlock else []):
        code += _only(name, call, [(_RETURN, 0, 0, _errno(errno.EPERM))])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in code)


def install(program: bytes) -> None:
    """Filter this process and all it starts, for good. Needs no_new_privs; OSError where the kernel refuses."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if library.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused")


def _errno(code: int) -> int:
    return 0x00050000 | code


def _only(name: str, call: str, body: _Code) -> _Code:
    """``body``, which must return, where the system call is this one."""
    wanted = number(call, name)
    return [] if wanted is None else [(_JUMP_EQ, 0, len(body), wanted), *body]


def _clone(landlock: bool) -> _Code:
    refuse = (_RETURN, 0, 0, _errno(errno.EPERM))
    code: _Code = [(_LOAD, 0, 0, _ARGUMENTS[0]), (_JUMP_SET, 0, 1, _NAMESPACE_FLAGS), refuse]
    if landlock:
        code += [(_JUMP_SET, 1, 0, _CLONE_THREAD), refuse]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _allow(values: tuple[int, ...]) -> _Code:
    """Only with one of these as the first argument."""
    return _compare(0, values, _ALLOW, _errno(errno.EPERM))


def _refuse(values: tuple[int, ...], argument: int = 0) -> _Code:
    """Not with one of these as that argument."""
    return _compare(argument, values, _errno(errno.EPERM), _ALLOW)


def _compare(argument: int, values: tuple[int, ...], hit: int, miss: int) -> _Code:
    """Compares the lower half of the argument, which is all of an int, with each value."""
    code: _Code = [(_LOAD, 0, 0, _ARGUMENTS[argument])]
    for value in values:
        code += [(_JUMP_EQ, 0, 1, value), (_RETURN, 0, 0, hit)]
    return [*code, (_RETURN, 0, 0, miss)]
