"""The conformance suite of endless data sources."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import cloudpickle
import numpy as np

from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowGenerator
from rlcore.data.dataset import DataSet
from rlcore.data.rows import BadRow

__all__ = ["RowGeneratorSuite", "made_elsewhere"]

_PROGRAM = "from rlcore.testing.data.generator_suite import made_elsewhere; made_elsewhere()"


def made_elsewhere() -> None:
    """Answer on stdout with the rows that the generator on stdin makes: the program of another process."""
    generator, path, asked = pickle.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(pickle.dumps([repr(generator.row(path, number, level)) for number, level in asked]))


class RowGeneratorSuite:
    """The rules of an endless data source.

    A subclass defines how to make the generator, and gives ``path`` of its rows. ``missing`` is a path that it refuses.
    """

    columns: tuple[str, ...] = ("gt_answer",)
    """Columns that every row of ``path`` has beside its messages."""

    path: str
    """What a user types."""

    missing: str = ""
    """A path that means nothing; "" if there is none."""

    numbers: Sequence[int] = (0, 1, 2, 3, 17, 1000)
    """The rows that the suite makes, at each level that it tries."""

    variables: Mapping[str, str] = {}
    """Environment variables of a run, if the rows need some."""

    def make(self) -> RowGenerator:
        """Return a fresh generator, with options if it has any."""
        raise NotImplementedError

    def tried(self) -> list[tuple[int, int]]:
        """Return (number, level) of the rows that the suite makes: at the lowest, a middle and the highest level."""
        levels = self.make().levels(self.path)
        return [(number, level) for level in sorted({0, levels // 2, levels - 1}) for number in self.numbers]

    def rows(self, asked: Sequence[tuple[int, int]]) -> list[object]:
        """Return these rows, made by a new generator."""
        made = self.make()
        return [made.row(self.path, number, level) for number, level in asked]

    def test_it_declares_that_it_has_no_end(self) -> None:
        """The class is a ``RowGenerator`` with ``endless``, as its spec."""
        assert isinstance(self.make(), RowGenerator), "it is not a RowGenerator"
        assert self.make().endless is True, "endless is not True on the class"

    def test_levels_are_a_number_from_one(self) -> None:
        """``levels`` returns a whole number from 1 on, and the same again."""
        found = {repr(self.make().levels(self.path)) for _ in range(2)}
        assert len(found) == 1, f"levels differ between two calls: {found}"
        assert found.pop().isdecimal(), f"levels is {self.make().levels(self.path)!r}, not a whole number"
        assert self.make().levels(self.path) >= 1

    def test_every_row_is_taken(self) -> None:
        """Each row of each level is a mapping with ``messages`` that end with the user's, and text columns."""
        for place, row in zip(self.tried(), self.rows(self.tried()), strict=True):
            assert isinstance(row, Mapping), f"row {place} is not a mapping: {row!r}"
            (prompt,) = DataSet.of([row]).prompts
            assert set(self.columns) <= set(prompt.columns), f"row {place} has the columns {sorted(prompt.columns)}, not {self.columns}"

    def test_rows_differ(self) -> None:
        """Rows of different numbers are not all the same."""
        asked = [(number, 0) for number in range(16)]
        assert len(set(map(repr, self.rows(asked)))) > 1, "16 rows are all the same"

    def test_levels_differ(self) -> None:
        """Rows of the lowest and the highest level differ, if there are two levels."""
        if (levels := self.make().levels(self.path)) > 1:
            low, high = ([(number, level) for number in range(16)] for level in (0, levels - 1))
            assert list(map(repr, self.rows(low))) != list(map(repr, self.rows(high))), "the highest level has the rows of the lowest"

    def test_a_row_depends_on_its_arguments_alone(self) -> None:
        """The same arguments give the same row: asked again, in another order, by another generator, whatever the global random generators
        are at."""
        asked, made = self.tried(), self.make()
        random.seed(1)
        np.random.seed(1)
        first = {place: repr(made.row(self.path, *place)) for place in asked}
        random.seed(2)
        np.random.seed(2)
        for place in reversed(asked):
            assert repr(made.row(self.path, *place)) == first[place], f"row {place} is another one when it is made again"
        for place, row in zip(asked, self.rows(asked), strict=True):
            assert repr(row) == first[place], f"another generator makes another row {place}"

    def test_global_random_generators_are_left_alone(self) -> None:
        """Making a row does not change the state of ``random`` and of numpy's global generator: a run's other draws depend on them."""
        random.seed(3)
        np.random.seed(3)
        wanted = random.random(), np.random.random()
        random.seed(3)
        np.random.seed(3)
        self.rows(self.tried())
        assert (random.random(), np.random.random()) == wanted, "making rows changed a global random generator"

    def test_another_process_makes_the_same_rows(self) -> None:
        """Two other processes, with other hash seeds of texts, make the same rows: each process of a run makes the rows that it needs."""
        asked = self.tried()
        made = [self._elsewhere(asked, seed) for seed in ("1", "2")]
        for place, here, *there in zip(asked, map(repr, self.rows(asked)), *made, strict=True):
            assert there == [here, here], f"another process makes another row {place}"

    def _elsewhere(self, asked: Sequence[tuple[int, int]], seed: str) -> Any:
        by_value = sys.modules[type(self.make()).__module__]
        cloudpickle.register_pickle_by_value(by_value)
        try:
            given = cloudpickle.dumps((self.make(), self.path, asked))
        finally:
            cloudpickle.unregister_pickle_by_value(by_value)
        environment = {**os.environ, "PYTHONHASHSEED": seed, **self.variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", _PROGRAM], input=given, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        return pickle.loads(done.stdout)

    def test_rows_begin_with_the_first_ones_at_level_0(self) -> None:
        """``rows`` yields the rows from 0 at level 0, numbered from 1."""
        found = list(islice(self.make().rows(self.path), 3))
        assert [number for number, _ in found] == [1, 2, 3]
        assert [repr(row) for _, row in found] == list(map(repr, self.rows([(0, 0), (1, 0), (2, 0)])))

    def test_a_path_that_means_nothing_is_refused(self) -> None:
        """A path that means nothing is a DataError that begins with the path, or its first row is a BadRow with a reason."""
        if not self.missing:
            return
        said, raised = "", False
        try:
            self.make().levels(self.missing)
            row = self.make().row(self.missing, 0, 0)
            said = str(row) if isinstance(row, BadRow) else ""
        except DataError as error:
            said, raised = str(error), True
        assert said, f"{self.missing} means nothing, and nothing says so"
        assert not raised or said.startswith(self.missing), f"the error does not begin with the path {self.missing}: {said}"
