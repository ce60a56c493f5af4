"""Conformance suite for rewards."""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from rlcore.contracts.errors import PluginError
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.contracts.types import FinishReason, RewardInput, Score
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.targets import disagreement
from rlcore.registry.unpackaged import FunctionReward
from rlcore.testing.time_limit import OverdueError, within

__all__ = ["HOSTILE", "DeclaredColumns", "RewardSuite"]

HOSTILE: dict[str, str] = {
    "empty": "",
    "white space": " \n\t\r\n ",
    "one megabyte": "a b 1 2 { } " * 87_382,
    "one long word": "x" * 300_000,
    "digits": "9" * 100_000,
    "deep braces": "{" * 5_000 + "}" * 5_000,
    "deep boxes": "\\boxed{" * 500 + "1" + "}" * 500,
    "unclosed box": "\\boxed{1",
    "unclosed fence": "```python\nprint(1)",
    "control characters": "\x00\x01\x1b[31m\x7f\u0085",
    "right to left and combining": "\u202eabc\u202c e\u0301\u0327 \u200b\u200d\ufeff",
    "other digits and planes": "１２３ ٣ ½ 𝟛 😀 \U0010ffff",
    "lone surrogate": "\ud800 answer \udfff",
    "many answers": "\\boxed{1} <answer>1</answer> " * 2_000,
    "nested tags": "<think><think><answer></think></answer>" * 50,
    "formula": "\\boxed{\\frac{1}{0} + \\sqrt[n]{x} = \\int_0^\\infty}",
    "power tower": "\\boxed{9^{9^{9^{9}}}}",
    "code": "__import__('os').system('true'); {0.__class__}",
    "format directives": "%s %d {} {0} ${x} \\1",
}
"""Texts that a policy can write and that have broken judges."""


class DeclaredColumns(Mapping[str, Any]):
    """The columns of a row that ``requires`` names; the object records each other column that the reward asked for."""

    def __init__(self, columns: Mapping[str, Any], requires: tuple[str, ...]) -> None:
        self._columns = {name: columns[name] for name in requires if name in columns}
        self._declared = frozenset(requires)
        self.undeclared: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name not in self._declared:
            self.undeclared.append(name)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class RewardSuite(ABC):
    """The rules of a reward.

    A subclass defines how to make the reward, gives one honest and one wrong item, and the spec if there is one. A call that takes longer
    than the deadline fails its test.
    """

    spec: ClassVar[RewardSpec | None] = None
    """The spec that the package registers, to compare with class, options and this suite."""
    gives_accuracy: ClassVar[bool] = True
    """As the spec declares."""
    options: ClassVar[Any] = None
    """The options that ``make`` uses, if the reward has a model of them."""
    deadline: ClassVar[float] = 10.0
    """Seconds for one call, of a reward without a spec."""

    @abstractmethod
    def make(self) -> Reward:
        """Return a fresh reward, not yet opened."""

    @abstractmethod
    def honest(self) -> RewardInput:
        """Return an item that is right; its columns may hold more than the reward declares."""

    @abstractmethod
    def wrong(self) -> RewardInput:
        """Return the same item with an answer that is wrong."""

    def opened(self) -> Reward:
        """Return a reward ready to score, given the columns it declares and no others."""
        reward = self.make()
        reward.open()
        return reward

    def scored(self, reward: Reward, item: RewardInput) -> Score:
        """Return the verdict of ``reward`` on one item, within the deadline."""
        with self._within(f"score of the text {item.text[:40]!r}"):
            return reward.score(item)

    def _within(self, what: str) -> AbstractContextManager[None]:
        return within(self.spec.deadline if self.spec else self.deadline, what)

    def test_class_and_spec_agree(self) -> None:
        """Spec, class and suite agree on the target, the options and each declaration. Not checked without a ``spec``."""
        if self.spec is None:
            return
        registry = Registry([])
        name = registry.add(PluginKind.REWARD, self.spec)
        try:
            target, model = registry.load(PluginKind.REWARD, name), registry.options_model(PluginKind.REWARD, name)
        except PluginError as error:
            raise AssertionError(str(error)) from error
        reward = self.make()
        called = f"spec {name!r}"
        if isinstance(target, type):
            assert isinstance(reward, target), f"make() gives a {type(reward).__name__}, the target of the {called} is {target.__name__}"
        problem = "" if isinstance(reward, FunctionReward) else disagreement(PluginKind.REWARD, self.spec, reward)
        assert not problem, f"{called}: {problem}"
        said = self.gives_accuracy, self.spec.gives_accuracy
        assert said[0] is said[1], f"gives_accuracy is {said[0]} in the suite and {said[1]} in the {called}"
        wanted = model.__name__ if model else "nothing"
        given = "nothing" if self.options is None else type(self.options).__name__
        assert isinstance(self.options, model or type(None)), f"options of the suite is {given}, config of the {called} names {wanted}"
        option = self.spec.full_value_option
        assert not option or (model and option in model.model_fields), (
            f"full_value_option of the {called} is not an option of {wanted}: {option}"
        )

    def test_honest_answer_beats_wrong_answer(self) -> None:
        """A right answer is worth more than a wrong one, and both are verdicts."""
        reward = self.opened()
        right, wrong = self.scored(reward, self.honest()), self.scored(reward, self.wrong())
        for score in (right, wrong):
            assert score.outcome.judged, f"a plain item was not judged: {score.outcome} ({score.reason})"
            assert score.in_statistics and score.in_loss, "a verdict must count in statistics and in the loss"  # noqa: PT018
        assert right.value > wrong.value, f"the right answer earns {right.value}, the wrong one {wrong.value}"

    def test_accuracy_as_declared(self) -> None:
        """With ``gives_accuracy``, a right answer has accuracy 1 and a wrong one less; else accuracy is None."""
        reward = self.opened()
        right, wrong = self.scored(reward, self.honest()), self.scored(reward, self.wrong())
        if self.gives_accuracy:
            assert right.accuracy == 1.0, f"accuracy of the right answer is {right.accuracy}"
            assert wrong.accuracy is not None, "accuracy of the wrong answer is missing"
            assert wrong.accuracy < 1.0, "the wrong answer has full accuracy"
        else:
            assert right.accuracy is None, "the spec says that this reward gives no accuracy"

    def test_never_raises_on_hostile_text(self) -> None:
        """Hostile text gives a verdict with a finite value, and never an exception."""
        reward = self.opened()
        for name, text in HOSTILE.items():
            for finish in (FinishReason.STOP, FinishReason.LENGTH):
                try:
                    score = self.scored(reward, replace(self.honest(), text=text, finish=finish))
                except OverdueError:
                    raise
                except Exception as error:
                    raise AssertionError(f"the text {name!r} ({finish}) made the reward raise {type(error).__name__}: {error}") from error
                self._check(score, name)

    def test_hostile_text_earns_nothing(self) -> None:
        """Empty, broken or echoed text is worth less than the right answer."""
        reward = self.opened()
        best = self.scored(reward, self.honest()).value
        echo = "\n".join(message.content for message in self.honest().messages)
        for name in ("empty", "white space", "unclosed box", "lone surrogate"):
            value = self.scored(reward, replace(self.honest(), text=HOSTILE[name])).value
            assert value < best, f"the text {name!r} earns as much as the right answer ({value})"
        assert self.scored(reward, replace(self.honest(), text=echo)).value < best, "the prompt, echoed, earns as much as the right answer"

    def test_deterministic_and_stateless(self) -> None:
        """The same item has the same score, whatever was scored before and in whichever worker."""
        reward = self.opened()
        items = [
            self.honest(),
            self.wrong(),
            *(replace(self.honest(), text=HOSTILE[name]) for name in ("empty", "formula", "many answers")),
        ]
        before = [self.scored(reward, item) for item in items]
        after = [self.scored(reward, item) for item in reversed(items)][::-1]
        assert before == after, "a second scoring in another order gave other scores: state leaks between items"
        assert [self.scored(self.opened(), item) for item in items] == before, "a fresh reward gives other scores"

    def test_reads_declared_columns_only(self) -> None:
        """The reward reads only the columns that ``requires`` names."""
        reward = self.opened()
        for item in (self.honest(), self.wrong()):
            columns = DeclaredColumns(item.columns, reward.requires)
            try:
                self.scored(reward, replace(item, columns=columns))
            except KeyError as error:
                raise AssertionError(f"the reward reads column {error}, requires is {reward.requires}") from error
            assert not columns.undeclared, f"the reward reads {columns.undeclared}, requires is {reward.requires}"

    def test_columns_are_not_changed(self) -> None:
        """The columns of a row are unchanged by scoring."""
        item = self.honest()
        before = pickle.dumps(dict(item.columns))
        self.scored(self.opened(), item)
        assert pickle.dumps(dict(item.columns)) == before, "scoring changed the columns of the row"

    def test_check_accepts_the_honest_row(self) -> None:
        """``check`` accepts the row of the honest answer."""
        reward = self.opened()
        with self._within("check"):
            reason = reward.check(self.honest().columns)
        assert reason is None, f"check refuses a row whose honest answer is right: {reason}"

    def test_notice_is_one_line(self) -> None:
        """``notice`` returns a text of at most one line."""
        notice = self.opened().notice()
        assert isinstance(notice, str), f"notice() gives a {type(notice).__name__}"
        assert len(notice.splitlines()) <= 1, "notice() gives more than one line"

    def test_group_scores_in_order(self) -> None:
        """``score_group`` returns one score for each item, in order, equal to ``score`` unless ``group_level`` is set."""
        reward = self.opened()
        items = [self.wrong(), self.honest(), self.wrong()]
        with self._within("score_group"):
            scores = reward.score_group(items)
        assert len(scores) == len(items), f"{len(items)} items, {len(scores)} scores"
        for score in scores:
            self._check(score, "of the group")
        if not reward.group_level:
            assert scores == [self.scored(reward, item) for item in items], "score_group differs from score, and group_level is False"

    def test_travels_to_a_worker(self) -> None:
        """Options and scores are equal after pickling."""
        assert pickle.loads(pickle.dumps(self.options)) == self.options, "the options change by pickling"
        score = self.scored(self.opened(), self.honest())
        assert pickle.loads(pickle.dumps(score)) == score, "a score changes by pickling"

    def test_close_after_open(self) -> None:
        """A reward can be opened, used and closed, and opened again in another worker."""
        for _ in range(2):
            reward = self.opened()
            self.scored(reward, self.honest())
            reward.close()

    def _check(self, score: object, name: str) -> None:
        assert isinstance(score, Score), f"the text {name!r} gave a {type(score).__name__}, not a Score"
        assert isinstance(score.value, int | float), f"the text {name!r}: value is a {type(score.value).__name__}"
        assert math.isfinite(score.value), f"the text {name!r}: value {score.value}"
        assert score.outcome.judged, f"the text {name!r}: outcome {score.outcome} ({score.reason}) blames the judge for the text"
        if score.accuracy is not None:
            assert 0.0 <= score.accuracy <= 1.0, f"the text {name!r}: accuracy {score.accuracy}"
        for part, value in score.parts.items():
            assert math.isfinite(value), f"the text {name!r}: part {part!r} is {value}"
