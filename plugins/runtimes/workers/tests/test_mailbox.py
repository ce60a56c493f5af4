"""A nudge ends one wait, a letter stays until it is taken, and neither is lost when it comes first."""

from __future__ import annotations

import threading

from rlcore_plugin_workers.producer_loop import Mailbox


def test_letters_come_in_order_and_once() -> None:
    mail = Mailbox()
    for letter in (list, dict, set):
        mail.put(letter)
    assert mail.take() == [list, dict, set]
    assert mail.take() == []


def test_a_nudge_that_comes_first_is_not_lost_and_ends_one_wait_only() -> None:
    mail = Mailbox()
    mail.nudge()
    mail.wait()
    waited = threading.Event()
    threading.Thread(target=lambda: (mail.wait(), waited.set()), daemon=True).start()
    assert not waited.wait(0.05)
    mail.nudge()
    assert waited.wait(20)


def test_a_letter_ends_every_wait_until_it_is_taken() -> None:
    mail = Mailbox()
    mail.put(list)
    mail.wait()
    mail.wait()
    mail.take()
    mail.wait(0.01)
