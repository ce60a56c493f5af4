"""Each rule of ``InferenceBackendSuite`` catches a planted bug, and a bug fails the rules that are meant for it, and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from unittest import SkipTest

import numpy as np
import pytest
from suites_of_fakes import FakeEngineSuite
from test_zoo_sleep import SLEEPERS
from zoo import ZOO, Specimen
from zoo_bugs import ALSO, BASIC
from zoo_engines import LEAVES

from rlcore.contracts.snapshots import Snapshot, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Request
from rlcore.testing import FakeInference, FakePolicy

RULES = sorted(name for name in dir(FakeEngineSuite) if name.startswith("test_"))
LACKING = "test_what_is_lacking_has_a_name_and_a_reason"
PLANTED: dict[tuple[str, str, bool], list[Specimen]] = defaultdict(list)
for one in ZOO:
    if issubclass(one.suite, FakeEngineSuite):
        PLANTED[one.name, one.suite.in_flight, one.suite.swaps].append(one)
NARROW = {key: specimens for key, specimens in PLANTED.items() if key[0] not in BASIC}


@pytest.fixture(autouse=True)
def _tidied() -> Iterator[None]:
    yield
    for bug in LEAVES:
        bug.tidy()


def broken(suite: type[FakeEngineSuite]) -> set[str]:
    """The rules that fail, each on engines of its own."""
    found = set()
    for rule in RULES:
        own = type("Own", (suite,), {"patience": 40})
        try:
            own().setup_method(getattr(own, rule))
            getattr(own(), rule)()
        except SkipTest:
            continue
        except Exception:
            found.add(rule)
    return found


def test_every_rule_has_a_bug_that_it_alone_is_meant_for() -> None:
    caught = {specimen.rule for specimens in PLANTED.values() for specimen in specimens} | {rule for _, rule, _ in SLEEPERS}
    assert set(RULES) - caught == {LACKING}  # a rule about the suite, not about an engine
    assert set(ALSO) | set(BASIC) <= {name for name, _, _ in PLANTED}


@pytest.mark.full
@pytest.mark.parametrize("planted", NARROW.values(), ids=["-".join(map(str, key)) for key in NARROW])
def test_a_bug_fails_the_rules_that_are_meant_for_it_and_no_other(planted: list[Specimen]) -> None:
    meant = {specimen.rule for specimen in planted}
    also = {f"test_{rule}" for rule in ALSO.get(planted[0].name, "").split()}
    found = broken(planted[0].suite)
    assert meant <= found <= meant | also


# --- the suite itself --------------------------------------------------------------------------------------------------


class Counting(FakeEngineSuite):
    """Notes its engines, and which of them are closed."""

    made: list[FakeInference]
    closed: list[FakeInference]

    def make(self, prompts_per_forward: int = 8) -> FakeInference:
        engine = super().make(prompts_per_forward)
        close = engine.close
        engine.close = lambda: (self.closed.append(engine), close())[1]  # type: ignore[method-assign]
        self.made.append(engine)
        return engine


def counting() -> type[Counting]:
    return type("Own", (Counting,), {"made": [], "closed": []})


def test_rules_share_engines_and_all_are_closed_in_the_end() -> None:
    suite = counting()
    for rule in RULES:
        try:
            getattr(suite(), rule)()
        except SkipTest:
            continue
    assert len(suite.made) <= 10
    suite.teardown_class()
    assert sorted(map(id, suite.made)) == sorted(map(id, suite.closed))


def test_a_rule_that_fails_takes_its_engine_with_it() -> None:
    suite = counting()
    suite().test_length_and_finish()

    def fail() -> None:
        with suite().shared() as engine:
            engine.submit(suite().requests(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert suite.closed == suite.made
    suite().test_length_and_finish()
    assert len(suite.made) == 2


def test_an_engine_that_rules_update_begins_each_with_the_first_weights() -> None:
    suite = counting()
    for _ in range(2):
        with suite().updatable() as (engine, first):
            score = engine.score(suite().fixed_sequence())
            assert np.allclose(score, FakePolicy.random(suite.vocabulary, 0, 0.5).logprobs(suite().fixed_sequence()), atol=1e-6)
            suite().update(engine, 3, first + 5)
    assert (len(suite.made), first) == (1, 100)


def test_what_an_engine_lacks_is_skipped_with_the_reason() -> None:
    suite = type("Own", (FakeEngineSuite,), {"lacks": {"test_streams": "it has one place"}})
    with pytest.raises(SkipTest, match="it has one place"):
        suite().setup_method(suite.test_streams)
    suite().setup_method(suite.test_cancel)
    getattr(suite(), LACKING)()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lacks": {"test_strems": "it has one place"}}, "not a rule of this suite"),
        ({"lacks": {"test_streams": " "}}, "gives no reason"),
        ({"tolerance": 0.1}, "tolerance_reason does not say why"),
    ],
)
def test_a_lack_without_a_name_or_a_reason_is_found(settings: dict[str, object], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(type("Own", (FakeEngineSuite,), settings)(), LACKING)()


def test_a_model_of_one_tensor_has_no_other_bucket_to_repeat() -> None:
    def snapshot(self: FakeEngineSuite, version: int) -> Snapshot:
        return Snapshot.of(version, dict(list(FakeEngineSuite.snapshot(self, version).tensors.items())[:1]))

    suite = type("Own", (FakeEngineSuite,), {"snapshot": snapshot})
    with pytest.raises(SkipTest, match="the model is one tensor"):
        suite().test_refuses_a_bucket_that_comes_twice()


class Untrained(FakeEngineSuite):
    """Has no forward pass: ``score`` stands for it."""

    def forward(self, version: int, token_ids: object) -> None:
        return None


@pytest.mark.parametrize("name", ["ScoresBeforeTheCut", "IgnoresTopP", "KeepsOneMore", "LogprobsBeforeTemperature", "DrawsTheUnlikely"])
def test_without_a_trainer_the_score_of_the_engine_finds_wrong_draws(name: str) -> None:
    planted = next(specimen for specimens in PLANTED.values() for specimen in specimens if specimen.name == name)
    with pytest.raises(AssertionError):
        getattr(type("Own", (Untrained, planted.suite), {})(), planted.rule)()


@pytest.mark.parametrize("rule", ["test_top_p_keeps_the_likeliest_tokens", "test_after_an_update_it_is_the_trainers_model"])
def test_without_a_trainer_and_a_vocabulary_it_says_what_is_missing(rule: str) -> None:
    suite = type("Own", (Untrained,), {"vocabulary": 0, "snapshot": FakeEngineSuite.snapshot})
    with pytest.raises(SkipTest, match=r"no forward pass of a trainer \(forward\)"):
        getattr(suite(), rule)()


class GoesByTheClock(FakeInference):
    """Generates whoever polls: its first tokens ``begins`` seconds after they were asked for, and one step each ``pace`` seconds."""

    clock = 0.0
    begins = pace = 0.0

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit(requests)
        self.due, self.ready = self.clock + self.begins, list[Completion]()

    def poll(self, timeout: float) -> list[Completion]:
        type(self).clock += timeout
        self._catch_up()
        ready, self.ready = self.ready, []
        return ready

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        self._catch_up()
        super().begin_update(version, manifest, in_flight)

    def _catch_up(self) -> None:
        while (self._waiting or self._running) and self.clock >= self.due:
            self.ready += super().poll(0.0)
            self.due += self.pace


@pytest.mark.parametrize("mode", [InFlight.RESUME, InFlight.FINISH])
@pytest.mark.parametrize(("begins", "pace"), [(0.0, 0.02), (0.03, 0.01), (0.021, 0.0004)])
def test_an_update_finds_requests_in_flight_whenever_the_engine_generates(
    monkeypatch: pytest.MonkeyPatch, mode: InFlight, begins: float, pace: float
) -> None:
    engine = type("Own", (GoesByTheClock,), {"begins": begins, "pace": pace})
    suite = type("OwnSuite", (FakeEngineSuite,), {"engine": engine, "in_flight": mode})
    monkeypatch.setattr(
        "rlcore.testing.inference.weight_update_rules.time.sleep", lambda seconds: setattr(engine, "clock", engine.clock + seconds)
    )
    suite().test_update_with_requests_in_flight()
    suite.teardown_class()
