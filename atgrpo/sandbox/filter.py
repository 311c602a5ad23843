"""A seccomp filter: system calls that a program could use to get around its limits fail with EPERM.

Memory files, System V and POSIX IPC hold memory that no process is charged for; a new namespace would give a program
mounts of its own; io_uring makes calls that a filter does not see.
"""

from __future__ import annotations

import errno
import platform
import struct

# Calls by name: their numbers on x86_64 and on aarch64 (Linux: arch/x86/entry/syscalls, include/uapi/asm-generic).
_DENIED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "ptrace": (101, 117),
    "process_vm_writev": (311, 271),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}
_SOCKET = (41, 198)
_FORK = ((57, 58), ())
"""fork and vfork; on aarch64 clone does it all."""
_CLONE, _CLONE3 = (56, 220), 435
_NEW_NAMESPACE, _THREAD = 0x7E020000, 0x00010000
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def system_call_filter(*, network: bool, processes: bool) -> bytes | None:
    """The filter as a BPF program; None on a machine whose call numbers are not known here.

    Args:
        network: Sockets may be made: there is a network namespace.
        processes: New processes may be made; else threads only. Needed where the kernel holds no cap for a run: a
            program that forks in a loop is faster than any watch.
    """
    if platform.machine() not in _MACHINES:
        return None
    column, architecture = _MACHINES[platform.machine()]
    denied = [numbers[column] for numbers in _DENIED.values()]
    denied += [] if network else [_SOCKET[column]]
    denied += [] if processes else _FORK[column]
    refuse = [(_RETURN, 0, 0, _FAIL | errno.EPERM)]
    clone = [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_NAMESPACE), *refuse]
    clone += [] if processes else [(_ANY_BIT, 1, 0, _THREAD), *refuse]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        *refuse,
        (_LOAD, 0, 0, _NUMBER),
        # The x32 calls: the same ones under other numbers.
        (_AT_LEAST, 0, 1, 0x40000000),
        *refuse,
    ]
    for number in denied:
        program += [(_EQUAL, 0, 1, number), *refuse]
    program += [
        # Its flags lie in memory, where no filter sees them. The C library then takes clone.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_EQUAL, 0, len(clone), _CLONE[column]),
        *clone,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in program)
