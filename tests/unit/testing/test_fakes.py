"""What each fake does beyond what the suites ask of every plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import rlcore.testing
from rlcore.contracts.errors import ConfigError, RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext, OptimizerSettings, RunInfo, TrainingContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import PluginKind
from rlcore.contracts.types import FinishReason, Message, RewardInput, Sampling
from rlcore.testing import (
    FakeInference,
    FakeInferenceOptions,
    FakePolicy,
    FakeTokenizer,
    load_fake_tokenizer,
    update_engine,
    write_fake_model,
)
from rlcore.testing.inference.fake_sampling import draw, noise_stream
from rlcore.testing.inference.faulty_inference import FaultyInference, FaultyInferenceOptions
from rlcore.testing.plugin_folder import PluginFolder
from rlcore.testing.policy import LAST, PAIR
from rlcore.testing.records import make_request, make_rollout, make_train_batch
from rlcore.testing.rewards.fake_reward import FakeReward
from rlcore.testing.trackers.fake_tracker import FakeTracker, FakeTrackerOptions
from rlcore.testing.training.faulty_training import FaultyTraining, FaultyTrainingOptions
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import weights_of


def engine(folder: Path, **options: object) -> FakeInference:
    model = str(write_fake_model(folder, "abcd"))
    context = InferenceContext(model=model, tokenizer=FakeTokenizer("abcd"), prompts_per_forward=2, max_tokens=12)
    return FakeInference(context, FakeInferenceOptions(**options))  # type: ignore[arg-type]


def test_every_public_name_resolves() -> None:
    for name in rlcore.testing.__all__:
        expected = "HuggingFaceTokenizer" if name == "ChatTokenizer" else name  # the class of the plugin that reads tokenizers
        assert getattr(rlcore.testing, name).__name__ == expected
    with pytest.raises(AttributeError):
        _ = rlcore.testing.NoSuchThing


def test_fakes_load_no_torch() -> None:
    light = "FakeInference FakeTraining FakeSandbox FakePolicy FakeTokenizer RewardSuite AdvantageSuite RunTester"
    light += " InferenceBackendSuite TrainingBackendSuite"
    program = f"import sys, rlcore.testing\nfor name in {light.split()}: getattr(rlcore.testing, name)\n"
    program += (
        "import rlcore.testing.fake_plugin, rlcore.testing.algorithms.fake_algorithms, rlcore.testing.rewards.fake_reward\n"
        "import rlcore.testing.trackers.fake_tracker, rlcore.testing.inference.faulty_inference\n"
        "heavy = {'torch', 'transformers', 'ray', 'pytest'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- tokenizer ---------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="abc 09", max_size=20))
@settings(deadline=None, max_examples=30)
def test_text_survives_the_tokenizer(text: str) -> None:
    tokenizer = FakeTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_template_and_special_tokens() -> None:
    tokenizer = FakeTokenizer("ab")
    messages = [Message(role="system", content="b"), Message(role="user", content="a?")]
    assert tokenizer.render(messages).tolist() == [2, 6, 3, 5, 1, 4]
    assert tokenizer.decode([3, 5, 1, 4, 6, 0]) == "ab"


def test_tokenizer_is_saved_and_loaded(tmp_path: Path) -> None:
    FakeTokenizer("xyz").save(tmp_path)
    loaded = load_fake_tokenizer(str(tmp_path))
    assert loaded.fingerprint() == FakeTokenizer("xyz").fingerprint() != FakeTokenizer("xy").fingerprint()
    with pytest.raises(ConfigError, match="write_fake_model"):
        load_fake_tokenizer(str(tmp_path / "nothing"))


# --- policy and sampling -----------------------------------------------------------------------------------------------


def test_the_gradient_is_the_derivative() -> None:
    policy = FakePolicy.random(5, seed=1, scale=1.0)
    ids, coefficients, temperature = np.array([1, 2, 2, 4, 0]), np.array([0.5, -1.0, 0.0, 2.0]), 0.7
    gradient = {name: np.zeros(array.shape) for name, array in policy.arrays().items()}
    policy.add_gradient(gradient, ids, coefficients, temperature)
    step = 2.0**-6
    for name, place in ((LAST, (2, 4)), (LAST, (1, 3)), (PAIR, (2 * 5 + 2, 4)), (PAIR, (5 * 5 + 1, 0)), (PAIR, (0, 0))):
        ends = []
        for sign in (1, -1):
            arrays = {key: np.array(array, np.float64) for key, array in policy.arrays().items()}
            arrays[name][place] += sign * step
            moved = FakePolicy(arrays[LAST], arrays[PAIR])
            ends.append(float(coefficients @ moved.logprobs(ids, temperature)))
        assert gradient[name][place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-3)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fake_policy\.npz"):
        FakePolicy.load(tmp_path)


def test_weights_that_do_not_fit() -> None:
    policy, other = FakePolicy.random(4), FakePolicy.random(5)
    with pytest.raises(WeightsError, match=r"'last.weight' has shape"):
        policy.replaced(dict(other.tensors()))
    with pytest.raises(WeightsError, match=r"lacks tensor 'pair.weight'"):
        policy.replaced({name: tensor for name, tensor in policy.tensors() if name == LAST})


@given(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 4), st.sampled_from([0.3, 0.8, 1.0]))
@settings(deadline=None, max_examples=60)
def test_draws_stay_in_the_kept_set(uniform: float, top_k: int, top_p: float) -> None:
    logits = np.array([2.0, 0.0, 1.0, -1.0])
    token, logprob = draw(logits, Sampling(top_k=top_k, top_p=top_p), uniform)
    order = [0, 2, 1, 3]
    probabilities = np.exp(logits) / np.exp(logits).sum()
    kept = order[:top_k] if top_k else order
    if top_p < 1:
        total = np.cumsum([probabilities[k] for k in order])
        kept = [k for k in kept if order.index(k) <= int(np.searchsorted(total, top_p))]
    assert token in kept
    assert logprob == pytest.approx(np.log(probabilities[token] / sum(probabilities[k] for k in kept)))


def test_frequencies_follow_the_probabilities() -> None:
    logits, stream = np.array([1.0, 0.0, -1.0]), noise_stream((0, 0, 0, 0))
    draws = [draw(logits, Sampling(temperature=0.5), stream.random())[0] for _ in range(4000)]
    expected = np.exp(logits / 0.5) / np.exp(logits / 0.5).sum()
    assert np.bincount(draws, minlength=3) / 4000 == pytest.approx(expected, abs=0.03)


def test_noise_is_a_function_of_the_key() -> None:
    streams = {key: noise_stream(key).random() for key in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]}
    assert len(set(streams.values())) == 5
    assert noise_stream((0, 0, 0, 1)).random() == streams[(0, 0, 0, 1)]


# --- engine ------------------------------------------------------------------------------------------------------------


def test_a_poll_is_so_many_steps(tmp_path: Path) -> None:
    running = engine(tmp_path, steps_per_poll=1)
    running.submit([make_request("r", [3, 4], noise=2, max_new_tokens=6)])
    finished = [running.poll(0.0) for _ in range(6)]
    tokens = len(next(answers for answers in finished if answers)[0].token_ids)
    assert [bool(answers) for answers in finished].index(True) == tokens - 1


def test_the_bound_on_tokens_cuts_an_answer(tmp_path: Path) -> None:
    running = engine(tmp_path)
    running.submit([make_request(f"r{n}", [3] * 10, noise=n, max_new_tokens=9) for n in range(8)])
    answers = running.poll(1.0)
    assert {len(answer.token_ids) for answer in answers if answer.finish is FinishReason.LENGTH} == {2}
    with pytest.raises(ConfigError, match="12 tokens, the bound is 12"):
        running.submit([make_request("long", [3] * 12)])


def test_an_id_in_use_is_refused(tmp_path: Path) -> None:
    running = engine(tmp_path)
    running.submit([make_request("r", [3, 4])])
    with pytest.raises(RunError, match="in flight already"):
        running.submit([make_request("r", [3, 4])])


def test_a_sleeping_engine_does_nothing(tmp_path: Path) -> None:
    running = engine(tmp_path)
    running.sleep()
    running.wake()
    with pytest.raises(RunError, match="wake"):
        running.submit([make_request("r", [3, 4])])
    update_engine(running, Snapshot.of(1, dict(FakePolicy.random(9).tensors())))
    running.submit([make_request("r", [3, 4])])
    with pytest.raises(RunError, match="1 requests in flight"):
        running.sleep()


# --- reward and tracker ------------------------------------------------------------------------------------------------


def item(text: str) -> RewardInput:
    return RewardInput(messages=(), columns={"gt_answer": "a"}, text=text)


def test_scripted_accidents() -> None:
    reward = FakeReward()
    with pytest.raises(RuntimeError, match="asked"):
        reward.score(item("!raise"))
    assert np.isnan(reward.score(item("!nan")).value)
    assert isinstance(reward.score(item("!type")), str)
    assert reward.score(item("!sleep 0")).accuracy == 1.0
    assert reward.score(item("!what")).accuracy == 0.0
    assert reward.score(item("!")).accuracy == 0.0


def test_a_scripted_exit_ends_the_process() -> None:
    program = "from rlcore.testing.rewards.fake_reward import FakeReward; from rlcore.contracts.types import RewardInput\n"
    program += "FakeReward().score(RewardInput(messages=(), columns={'gt_answer': 'a'}, text='!exit'))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 3


def test_a_row_without_gold_is_refused() -> None:
    assert FakeReward().check({"gt_answer": "  "})
    assert FakeReward().check({"gt_answer": 3})
    assert FakeReward().check({"gt_answer": "a"}) is None


def test_the_tracker_keeps_records_and_fails_on_demand() -> None:
    tracker = FakeTracker(FakeTrackerOptions(fail="log", after=1))
    tracker.open(RunInfo(folder=Path("run")))
    tracker.log({"step": 1})
    with pytest.raises(RuntimeError, match="fail in log"):
        tracker.log({"step": 2})
    tracker.close()
    assert (tracker.records, tracker.closed, FakeTracker.made[-1]) == ([{"step": 1}], True, tracker)
    with pytest.raises(ValidationError):
        FakeTrackerOptions(fail="sometimes")  # type: ignore[arg-type]


# --- faults ------------------------------------------------------------------------------------------------------------


def test_an_engine_that_dies(tmp_path: Path) -> None:
    faulty = FaultyInference(engine(tmp_path).context, FaultyInferenceOptions(fault="dies", steps_per_poll=1))
    faulty.submit([make_request(f"r{n}", [3, 4], noise=n, max_new_tokens=9) for n in range(8)])
    faulty.poll(0.0)
    faulty.poll(0.0)
    with pytest.raises(RuntimeError, match="engine died"):
        faulty.poll(0.0)


def faulty_trainer(folder: Path, fault: str) -> FaultyTraining:
    trainer = FaultyTraining(None, FaultyTrainingOptions(fault=fault))  # type: ignore[arg-type]
    optimizer = OptimizerSettings(learning_rate=0.1)
    model = str(write_fake_model(folder, "abcd"))
    trainer.setup(TrainingContext(model=model, optimizer=optimizer, rollouts_per_forward=4, tokens_per_forward=99, prompts_per_slice=9))
    return trainer


def test_trainers_with_faults(tmp_path: Path) -> None:
    batch = make_train_batch([make_rollout([3, 4], [5, 0])], [1.0])
    assert list(weights_of(faulty_trainer(tmp_path, "drops"))) == [LAST]
    dies, nan = faulty_trainer(tmp_path, "dies"), faulty_trainer(tmp_path, "nan")
    for trainer in (dies, nan):
        assert np.isfinite(trainer.update(batch, PlainObjective())["loss"])
    with pytest.raises(RuntimeError, match="trainer died"):
        dies.update(batch, PlainObjective())
    assert np.isnan(nan.update(batch, PlainObjective())["loss"])
    assert np.isnan(nan.probe(np.array([3, 4]))).any()


# --- plugin ------------------------------------------------------------------------------------------------------------


def test_the_plugin_offers_a_fake_of_every_kind(tmp_path: Path) -> None:
    """But of runtimes, for the local one runs fake backends as it runs others, and of commands, which nothing but a person types."""
    with PluginFolder(tmp_path) as folder:
        folder.install("fakes", target="rlcore.testing.fake_plugin")
        registry = folder.discover()
        assert not [problem for row in registry.rows for problem in row.problems]
        for kind in set(PluginKind) - {PluginKind.RUNTIME, PluginKind.COMMAND}:
            assert registry.has(kind, "fake"), kind
            assert registry.owner(kind, "fake") == "rlcore-plugin-fakes"
            if kind is not PluginKind.ALGORITHM:
                assert registry.load(kind, "fake").__module__.startswith("rlcore.testing.")
                registry.options_model(kind, "fake")
        for name in ("faulty", "fake-pipeline"):
            assert registry.load(PluginKind.TRAINING, name)
