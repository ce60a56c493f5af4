"""The suite of sandboxes passes a sound one and catches every planted bug."""

from __future__ import annotations

import pytest
from zoo_sandboxes import BUGS, ClosesOnce, PlainSuite

from rlcore.testing import SandboxSuite


class TestPlain(PlainSuite):
    """Sound, but for the walls that it does not claim."""


@pytest.mark.parametrize(("bug", "rule"), BUGS, ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_the_sandbox_suite_catches_the_bug(bug: type, rule: str) -> None:
    suite = bug if issubclass(bug, PlainSuite) else type("Suite", (PlainSuite,), {"kind": bug})
    with pytest.raises(AssertionError):
        getattr(suite(), rule)()


def test_the_sandbox_suite_catches_one_that_is_closed_once() -> None:
    suite = type("Suite", (PlainSuite,), {"kind": ClosesOnce})()
    with pytest.raises(RuntimeError, match="it is closed"):
        suite.test_it_may_be_closed_twice()


def test_every_rule_of_sandboxes_has_its_bug() -> None:
    rules = {name for name in vars(SandboxSuite) if name.startswith("test_")}
    assert rules == {rule for _, rule in BUGS}
