"""The suites catch planted bugs: each specimen of the zoo fails the rule that is there for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from suites_of_fakes import FakeLossSuite
from zoo import ZOO, Specimen
from zoo_engines import LEAVES
from zoo_methods import ChoosesByKey

from rlcore.contracts.errors import RunError

SPECIMENS = [pytest.param(one, id=f"{one.name}-{one.rule}") for one in ZOO]


@pytest.fixture(autouse=True)
def _tidied() -> Iterator[None]:
    yield
    for bug in LEAVES:
        bug.tidy()


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_the_suite_catches_the_bug(specimen: Specimen) -> None:
    with pytest.raises((AssertionError, RunError), match=specimen.says or None):
        getattr(specimen.suite(), specimen.rule)()


def test_the_zoo_is_large_and_varied() -> None:
    assert len({specimen.name for specimen in ZOO}) >= 12
    assert len({specimen.suite.__mro__[-3] for specimen in ZOO}) >= 4


class TestKeyedChoice(FakeLossSuite):
    """The rules about choices leave a right one alone, ties and all."""

    def make(self) -> ChoosesByKey:
        return ChoosesByKey()
