"""The system call filter, interpreted here as the kernel would, against tables written down apart from it; and the calls' numbers."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_sandbox.jail import seccomp, without_namespaces
from rlcore_plugin_sandbox.jail.syscalls import NUMBERS

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
NOTIFY = 0x7FC00000
IGNORED = 0x50000  # the call does nothing and says that it did
PID = 4242
NEWEST = 467
WORDS = st.sampled_from(
    [
        0,
        1,
        2,
        3,
        9,
        10,
        16,
        17,
        PID,
        PID + 1,
        0x10000,
        0x3D0F00,
        0x10400,
        7,
        8,
        32,
        33,
        1031,
        0x40022,
        0x21,
        0x23,
        0x10000000,
        0x80000,
        0x80801,
        0xFFFFFFFF,
        0x5401,
        0x5412,
        0x5423,
    ]
) | st.integers(0, 0xFFFFFFFF)


def interpret(program: bytes, nr: int, arch: int, arguments=()) -> int:
    """What a classic BPF machine returns for one system call; IndexError where a jump leaves the program."""
    data = struct.pack("=IIQ6Q", nr, arch, 0, *[*arguments, *[0] * (6 - len(arguments))])
    code = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        operation, yes, no, operand = code[at]
        at += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            assert operand % 4 == 0
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:
            accumulator &= operand
        else:
            hit = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: bool(accumulator & operand)}[operation]
            at += yes if hit else no


# What each call is held to, written apart from the filter: a predicate on the lower halves of its arguments that says whether it may pass.
def own(*a):
    return a[0] == PID


def thread_only(*a):
    return a[0] & 0x10400 == 0x10400 and not a[0] & 0x7E020080  # CLONE_THREAD and CLONE_FILES


def no_new_namespace(*a):
    return not a[0] & 0x7E020080


def local(*a):
    return a[0] == 1


def harmless_option(*a):
    return a[1] == 1 and a[2] in (2, 9, 13, 15, 16, 20, 21, 66, 67)


def reading_does_not_empty(position):
    return lambda *a: not (a[position] & 0o1000 and a[position] & 3 == 0)


def cpu_limit_stays(*a):
    return a[1] != 0 or a[2] == 0


def no_memory_without_owner(*a):
    return not (a[3] & 0x40000 or (a[3] & 1 and a[3] & 0x20))


def children_are_waited_for(*a):
    return a[0] & 0xFFFFFFFF != 17 or a[1] == 0


SESSION_OPTIONS = {1: (2, 6, 9, 13, 15, 16, 20, 21, 66, 67), 6: (1, 4, 5, 6, 9, 12, 18), 41: (25, 26), 0: (1, 11)}
CONDITIONS = {
    "namespaces": {
        "clone": no_new_namespace,
        "setrlimit": lambda *a: a[0] != 0,
        "prlimit64": cpu_limit_stays,
        "socket": local,
        "socketpair": local,
        "setsockopt": harmless_option,
        "fcntl": lambda *a: a[1] not in (1031, 1024, 1026),
        "mmap": no_memory_without_owner,
        "rt_sigaction": children_are_waited_for,
    },
    "landlock": {
        "clone": thread_only,
        "kill": lambda *a: own(*a) and a[1] != 9,
        "tkill": lambda *a: own(*a) and a[1] != 9,
        "tgkill": lambda *a: own(*a) and a[2] != 9,
        "setrlimit": lambda *a: a[0] != 0,
        "prlimit64": lambda *a: a[0] in (0, PID) and cpu_limit_stays(*a),
        "prctl": lambda *a: a[0] not in (1, 4, 35, 0x59616D61),
        "fcntl": lambda *a: a[1] in (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032, 1034),
        "ioctl": lambda *a: a[1] in (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451),
        "setsockopt": harmless_option,
        "socketpair": lambda *a: a[0] == 1 and a[1] & ~0x80800 == 1,
        "open": reading_does_not_empty(1),
        "openat": reading_does_not_empty(2),
        "openat2": None,
        "mmap": no_memory_without_owner,
    },
    "session": {
        "clone": no_new_namespace,
        "prlimit64": lambda *a: a[0] == 0,
        "socket": lambda *a: a[2] == 0 or (a[0] in (2, 10) and a[2] in (6, 17)),
        "socketpair": local,
        "setsockopt": lambda *a: a[2] in SESSION_OPTIONS.get(a[1], ()),
        "fcntl": lambda *a: a[1] not in (1031, 1024, 1026),
        "ioctl": lambda *a: a[1] not in (0x5412, 0x5423),
        "mmap": no_memory_without_owner,
        "setpriority": lambda *a: False,
        "ioprio_set": lambda *a: False,
        **dict.fromkeys(("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr"), lambda *a: a[0] != 1),
        **dict.fromkeys(("flock", "inotify_init", "inotify_init1", "inotify_add_watch")),
    },
}
# No table of the jail's: names that no version of the jail may forget.
NEVER = [
    "ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open", "io_uring_setup", "io_setup", "userfaultfd",
    "add_key", "keyctl", "request_key", "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "setns",
    "unshare", "open_by_handle_at", "kexec_load", "init_module", "reboot", "personality", "seccomp", "shmget", "msgget",
    "mq_open", "semget", "memfd_create", "memfd_secret", "vmsplice", "statmount", "listmount", "fanotify_init",
]  # fmt: skip
NEVER_WITHOUT_NAMESPACES = [
    "socket", "bind", "connect", "listen", "accept4", "sendmsg", "sendmmsg", "setsid", "setpgid", "pidfd_open",
    "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "chmod", "fchmodat", "fchownat", "utimensat", "setxattr",
    "sched_setaffinity", "setpriority", "ioprio_set", "truncate", "fallocate", "fork", "vfork",
]  # fmt: skip


def expected(level: str, machine: str, name: str, arguments) -> int:
    conditions = CONDITIONS[level]
    if name == "clone3" or (name in conditions and conditions[name] is None):
        return ENOSYS
    if (level, name) == ("session", "socket") and arguments[0] not in (1, 2, 10, 16):
        return 0x50000 | errno.EAFNOSUPPORT
    if (level, name) == ("session", "fcntl") and arguments[1] in (36, 37, 38):
        return 0x50000 | errno.EINVAL
    if name == "rt_sigaction" and name in conditions:
        return ALLOW if conditions[name](*arguments) else IGNORED
    if name in conditions:
        return ALLOW if conditions[name](*arguments) else EPERM
    refused = seccomp.COMMON + (seccomp.LANDLOCK_TOO if level == "landlock" else [])
    return EPERM if name in refused else ALLOW


def the_filter(level: str, machine: str) -> bytes:
    if level == "session":
        return seccomp.session_bpf(machine)
    return seccomp.bpf(landlock=level == "landlock", pid=PID, of_machine=machine)


BOTH = pytest.mark.parametrize("machine", MACHINES)
LEVELS = pytest.mark.parametrize("level", CONDITIONS)
COLUMN = {"x86_64": 0, "aarch64": 1}


@BOTH
@given(arguments=st.lists(WORDS, min_size=6, max_size=6))
def test_calls_of_flock_go_to_the_supervisor_if_it_answers_them(machine: str, arguments: list[int]) -> None:
    rules, number = seccomp.session_bpf(machine, locks=True), NUMBERS["flock"][COLUMN[machine]]
    assert interpret(rules, number, MACHINES[machine], arguments) == NOTIFY


@BOTH
@given(command=st.integers(0, 40), arguments=st.lists(WORDS, min_size=6, max_size=6))
def test_of_fcntl_only_questions_about_record_locks_go_to_the_supervisor(machine: str, command: int, arguments: list[int]) -> None:
    rules, number = seccomp.session_bpf(machine, locks=True), NUMBERS["fcntl"][COLUMN[machine]]
    arguments[1] = command
    allowed = 0x50000 | errno.EINVAL if command in (36, 37, 38) else ALLOW
    assert interpret(rules, number, MACHINES[machine], arguments) == (NOTIFY if command == 5 else allowed)


@BOTH
@LEVELS
@given(name=st.sampled_from(sorted(NUMBERS)), arguments=st.lists(WORDS, min_size=6, max_size=6))
def test_decisions_are_those_of_the_table(level: str, machine: str, name: str, arguments: list[int]) -> None:
    number = NUMBERS[name][COLUMN[machine]]
    if number is not None and number < NEWEST:
        assert interpret(the_filter(level, machine), number, MACHINES[machine], arguments) == expected(level, machine, name, arguments)


@BOTH
@LEVELS
@settings(max_examples=200)
@given(data=st.data(), arguments=st.lists(WORDS, min_size=6, max_size=6))
def test_decisions_by_arguments_are_those_of_the_table(level: str, machine: str, data, arguments: list[int]) -> None:
    name = data.draw(st.sampled_from(sorted(CONDITIONS[level])))
    number = NUMBERS[name][COLUMN[machine]]
    if number is not None:
        assert interpret(the_filter(level, machine), number, MACHINES[machine], arguments) == expected(level, machine, name, arguments)


@BOTH
@LEVELS
@given(number=st.integers(0, 700), arguments=st.lists(WORDS, min_size=6, max_size=6))
def test_other_calls_pass_and_those_of_tomorrow_do_not_exist(level: str, machine: str, number: int, arguments: list[int]) -> None:
    said = interpret(the_filter(level, machine), number, MACHINES[machine], arguments)
    if number >= NEWEST:
        assert said == ENOSYS
    elif number not in {numbers[COLUMN[machine]] for numbers in NUMBERS.values()}:
        assert said == ALLOW


@BOTH
@LEVELS
def test_what_may_never_pass(level: str, machine: str) -> None:
    for name in NEVER + (NEVER_WITHOUT_NAMESPACES if level == "landlock" else []):
        number = NUMBERS[name][COLUMN[machine]]
        assert number is None or interpret(the_filter(level, machine), number, MACHINES[machine], [PID] * 6) == EPERM, name


@BOTH
@LEVELS
@given(arch=st.integers(0, 0xFFFFFFFF), number=st.integers(0, 0xFFFFFFFF))
def test_another_architecture_is_killed(level: str, machine: str, arch: int, number: int) -> None:
    if arch != MACHINES[machine]:
        assert interpret(the_filter(level, machine), number, arch) == KILL


@LEVELS
@given(number=st.integers(0x40000000, 0xFFFFFFFF))
def test_x32_is_refused(level: str, number: int) -> None:
    assert interpret(the_filter(level, "x86_64"), number, MACHINES["x86_64"]) == EPERM


@LEVELS
@pytest.mark.parametrize("number", [0x40000000 | 41, 0x40000000 | 520, 0x400003E8])
def test_x32_is_refused_for_calls_that_are_known(level: str, number: int) -> None:
    assert interpret(the_filter(level, "x86_64"), number, MACHINES["x86_64"]) == EPERM


@BOTH
@LEVELS
def test_every_jump_stays_inside_and_every_path_ends(level: str, machine: str) -> None:
    code = list(struct.iter_unpack("=HBBI", the_filter(level, machine)))
    assert len(code) <= 4096
    for at, (operation, yes, no, _) in enumerate(code):
        if operation in (0x15, 0x35, 0x45):
            assert at + 1 + max(yes, no) < len(code)
    assert code[-1][0] == 0x06


@BOTH
def test_the_place_of_the_process_id_stands_alone(machine: str) -> None:
    """Each run puts its own id where a placeholder stands: exactly there, and nowhere by accident."""
    held, own_id = (seccomp.bpf(landlock=True, pid=pid, of_machine=machine) for pid in (without_namespaces._ANY_PID, PID))
    assert held.replace(struct.pack("=I", without_namespaces._ANY_PID), struct.pack("=I", PID)) == own_id
    assert held.count(struct.pack("=I", without_namespaces._ANY_PID)) == 4


def test_numbers_are_those_of_libseccomp() -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("no libseccomp here to compare with")
    unknown = []
    for name, numbers in NUMBERS.items():
        for machine, number in zip(MACHINES, numbers, strict=True):
            said = library.seccomp_syscall_resolve_name_arch(ctypes.c_uint32(MACHINES[machine]), name.encode())
            if said == -1:  # newer than the library
                unknown.append(name)
            else:  # negative: a number of the library's own for a call that this machine does not have
                assert (said if said >= 0 else None) == number, (name, machine)
    assert len(set(unknown)) < len(NUMBERS) // 5, unknown
