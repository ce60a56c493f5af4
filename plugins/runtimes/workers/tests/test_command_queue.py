"""A wake ends one wait, a command stays until it is taken, and neither is lost when it comes first."""

from __future__ import annotations

import threading

from rlcore_plugin_workers.producer_loop import CommandQueue


def test_commands_come_in_order_and_once() -> None:
    commands = CommandQueue()
    for command in (list, dict, set):
        commands.put(command)
    assert commands.take() == [list, dict, set]
    assert commands.take() == []


def test_a_nudge_that_comes_first_is_not_lost_and_ends_one_wait_only() -> None:
    commands = CommandQueue()
    commands.wake()
    commands.wait()
    waited = threading.Event()
    threading.Thread(target=lambda: (commands.wait(), waited.set()), daemon=True).start()
    assert not waited.wait(0.05)
    commands.wake()
    assert waited.wait(20)


def test_a_letter_ends_every_wait_until_it_is_taken() -> None:
    commands = CommandQueue()
    commands.put(list)
    commands.wait()
    commands.wait()
    commands.take()
    commands.wait(0.01)
