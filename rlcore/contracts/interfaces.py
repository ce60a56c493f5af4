"""What a plugin implements. Base classes carry the defaults, so that a plugin writes only what it is for.

The core calls these and knows nothing else of a plugin. Constructors: every target is called once per process as
``target(context, options)`` for backends and ``target(options)`` or ``target()`` for the rest, ``options`` being an instance of the
plugin's own pydantic model where its spec names one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from rlcore.contracts.batches import LossBatch, RewardBatch, TrainBatch
from rlcore.contracts.capabilities import InferenceCapabilities, InFlight, TrainingCapabilities
from rlcore.contracts.errors import InfrastructureError
from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.run_info import RunInfo
from rlcore.contracts.snapshots import Bucket, WeightsManifest, WeightSource
from rlcore.contracts.specs import AdvantageSpec, InferenceBackendSpec, LossSpec, RewardSpec, TrainingBackendSpec
from rlcore.contracts.training_settings import LoraSettings, OptimizerSettings
from rlcore.contracts.types import Completion, Message, Request, RewardInput, Score

if TYPE_CHECKING:
    import torch

__all__ = [
    "AdvantageEstimator",
    "AsyncReward",
    "InferenceBackend",
    "InferenceContext",
    "Loss",
    "ModelRole",
    "Need",
    "Objective",
    "PendingSave",
    "Reward",
    "RewardDetail",
    "RowSource",
    "RunInfo",
    "Tokenizer",
    "Tracker",
    "TrainingBackend",
    "TrainingContext",
]


class Need(StrEnum):
    """What a loss needs computed for it; nothing else is computed."""

    OLD = "old"
    """Old log probabilities already in ``prepare``; ``per_token`` always has them."""
    REFERENCE = "reference"
    ENTROPY = "entropy"


class RewardDetail(StrEnum):
    """What an estimator needs in its ``RewardBatch`` beside the rewards; nothing else is gathered. The value is the field's name."""

    PARTS = "parts"
    TOKEN_REWARDS = "token_rewards"
    PROMPT_IDS = "prompt_ids"
    TURNS = "turn_lengths"
    """``turn_offsets`` too."""
    ROLLOUT_LOGPROBS = "rollout_logprobs"


class ModelRole(StrEnum):
    """Whose log probabilities a training backend is asked for."""

    POLICY = "policy"
    REFERENCE = "reference"


class Tokenizer(Protocol):
    """What rlcore asks of a tokenizer; a Hugging Face one is wrapped, a fake is ten lines."""

    stop_ids: frozenset[int]
    """Tokens that end a completion."""

    def render(self, messages: Sequence[Message]) -> np.ndarray:
        """int32[C]: the chat template applied, with the generation prompt."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens."""
        ...

    def fingerprint(self) -> str:
        """A hash that two processes compare, so that they cannot disagree on what a token means."""
        ...

    def save(self, folder: Path) -> None:
        """Write it beside a model, in a form that its loader reads back."""
        ...


# --- inference ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceContext:
    """What one inference worker is given. ``prompts_per_forward`` is ``-imbs``; ``max_tokens`` bounds prompt + response;
    ``trust_remote_code``: Python code in the model's folder may be run. ``adapter_rank``: the largest rank of the LoRA adapters that come
    over the weights of ``model``; 0: none come. ``producer``: whose engine it is, of ``producers``, from 0; one that takes another's
    place has its number."""

    model: str
    tokenizer: Tokenizer
    prompts_per_forward: int
    max_tokens: int
    dtype: str = "float32"
    device: str = "auto"
    tensor_parallel: int = 1
    seed: int = 0
    trust_remote_code: bool = False
    adapter_rank: int = 0
    producer: int = 0
    producers: int = 1


class InferenceBackend(FromSpec, ABC, described_by=InferenceBackendSpec):
    """Generates completions, many at a time, and takes new weights while it runs. Not thread-safe: one owner calls it."""

    capabilities: InferenceCapabilities
    epoch = -1
    """Of the group that it joined last; ``update_engine`` keeps it."""

    @abstractmethod
    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; returns at once. Requests with equal ``token_ids`` share the prompt's computation where possible."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Completion]:
        """Make progress; return what has finished, [] after ``timeout`` seconds or where nothing is in flight. Never spins."""

    @abstractmethod
    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests; those in flight are returned by ``poll`` as ``ABORTED`` with the tokens they have; unknown ids are ignored."""

    @abstractmethod
    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """New weights come. Pause, and treat the requests in flight as ``in_flight`` says, which is what the capabilities declare.

        Raises WeightsError, naming the tensor, if the manifest does not fit the model; the engine goes on with its old weights then. No
        ``submit`` and no ``poll`` comes before ``finish_update``. An update that is broken off between the two leaves an engine that cannot
        swap torn: it raises RunError at whatever asks it for tokens until another update has come to its end."""

    @abstractmethod
    def receive(self, bucket: Bucket) -> None:
        """Take the tensors of one bucket; buckets come in the order of their index, each once. Keep none of its arrays, and no view of
        them: their memory is used for other weights as soon as this returns."""

    @abstractmethod
    def finish_update(self) -> int:
        """Serve the new weights from here on, whole; return their version. WeightsError, naming the tensor, for one that did not come."""

    def describe(self) -> Mapping[str, Any]:
        """What the trainer's side of a transfer of the engine's own must know of it before it builds a group, picklable: ``{"ranks": 4}``.
        Called once, before the first update."""
        return {}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Join the group of the engine's own transfer that the trainer's side describes in ``info``; wait until it is whole.

        Called before the first update that comes by it, and again under a higher ``epoch`` when its members changed: a collective cannot
        lose one, so its group is built anew, and what is left of the group before is dropped here. ``connect``, ``receive`` and
        ``finish_update`` raise GroupBrokenError if the group breaks: the producer keeps the engine, tells the transfer, and waits for the
        version to come under a higher epoch, for ``weights.deadline`` at most."""
        raise NotImplementedError(f"{type(self).__name__} takes weights through the memory of the host alone (capabilities.transfers)")

    @abstractmethod
    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """The probe. int32[T] -> float32[T-1]: log probability of each token after the first, at temperature 1."""

    def sleep(self, level: int = 1) -> None:
        """Release the device. Level 1: the weights may move to host memory, and an update over them (adapter, delta) may follow ``wake``;
        level 2: nothing is kept, whole weights follow. An engine that takes whole weights alone is asked for level 2."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake(self) -> None:
        """Take the device back, as much of it as the weights need; an update follows before the next ``submit``."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake_cache(self) -> None:
        """After ``wake`` and the update, before the next ``submit``: take the rest of the device back, for keys and values."""

    def close(self) -> None:
        """Free everything; called once, also after an error."""


# --- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext:
    """What one trainer rank is given. ``rollouts_per_forward`` is ``-tmbs``; ``tokens_per_forward`` bounds its tokens and padding;
    ``prompts_per_slice`` is ``-tMbs``. ``needs``: what the objective asks for; the reference model is loaded only with ``Need.REFERENCE``.
    ``trust_remote_code``: Python code in the model's folder may be run.
    """

    model: str
    optimizer: OptimizerSettings
    rollouts_per_forward: int
    tokens_per_forward: int
    prompts_per_slice: int
    needs: frozenset[Need] = frozenset()
    dtype: str = "float32"
    device: str = "auto"
    rank: int = 0
    world_size: int = 1
    rendezvous: str = ""
    """Where the ranks meet, ``tcp://host:port``; "" with one rank."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    zero_stage: int = 0
    seed: int = 0
    trust_remote_code: bool = False
    lora: LoraSettings | None = None
    """None: every weight is trained."""
    reference: str = ""
    """The model of the reference, "" for ``model`` itself: of a run that goes on ``model`` is the policy of its checkpoint, and this is
    what it was begun with. With ``lora`` both are the latter, and ``load`` brings the adapters."""


class Objective(Protocol):
    """The loss of one micro-batch, global normalisers already in it: a pure function of the last stage's output.

    The sum over all micro-batches of all ranks of one optimizer step is the loss of that step; its gradient is the step's gradient.
    """

    needs: frozenset[Need]

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] log probabilities -> scalar to call ``backward`` on, and metrics whose sum over micro-batches is the step's figure."""
        ...


class PendingSave(Protocol):
    """Something that is being written; a ``concurrent.futures.Future`` is one."""

    def done(self) -> bool:
        """True once it is written, or has failed."""

    def result(self) -> object:
        """Wait until it is written; raises what went wrong, RunError if ``close`` gave it up."""


class TrainingBackend(FromSpec, ABC, described_by=TrainingBackendSpec):
    """Owns the policy, its optimizer and the loop over micro-batches.

    With several ranks every method but ``data_parallel``, ``timings`` and ``close`` is collective: all ranks call it, in the same order.
    ``close`` waits for nobody: another rank may be dead.
    """

    capabilities: TrainingCapabilities

    @abstractmethod
    def setup(self, context: TrainingContext) -> None:
        """Load the model and build the optimizer; heavy imports happen here or later."""

    @abstractmethod
    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """float32[N] of this rank's share: of every policy token at its rollout's temperature, over the full vocabulary, without
        gradient. A share may be empty."""

    @abstractmethod
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """One optimizer step on this rank's share, which may be empty; the metrics of the whole step, the same on every rank, with
        ``grad_norm`` (before clipping) and ``learning_rate``. Weights and normalisers of the share are those of the global batch, so
        gradients and the objective's metrics add up over ranks.

        Two steps are not taken, on all ranks alike: one in which no rank has a rollout in the loss, and one whose ``grad_norm`` is not
        finite, which has ``skipped_steps`` 1.0 among its metrics. They leave weights, moments and schedule as they were, bit for bit."""

    @abstractmethod
    def weight_source(self) -> WeightSource:
        """The policy's weights as they stand, for whoever sends them to the engines; collective, see ``WeightSource``."""

    @abstractmethod
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1]: the policy's log probability of each token after the first, at temperature 1."""

    @abstractmethod
    def save_model(self, folder: Path, dtype: str | None = None) -> PendingSave | None:
        """Write a Hugging Face checkpoint of the policy (without tokenizer) into an empty folder that all ranks see, in the precision that
        a resume goes on from; ``dtype``, one of ``capabilities.exports``: the whole model rounded to it, adapters merged.
        None: it is written. A ``PendingSave``: the weights are copied, so that the next update may change them, and are being written;
        ``save`` follows at once, and no other checkpoint before both are done. Either may be called while the backend sleeps."""

    @abstractmethod
    def save(self, folder: Path) -> PendingSave | None:
        """Write what exact resume needs beyond the model: optimizer, schedule, random state. What it returns: see ``save_model``."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what ``save`` wrote; every value equal bit for bit."""

    def sleep(self) -> None:
        """Release the device; weights and optimizer move to host memory. Collective: returns once every rank has released its own, so that
        an engine may take it. Called only if ``capabilities.sleeps``, after an update and the hand-out of its weights."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake(self) -> None:
        """Take the device back; collective. An update or ``weight_source`` follows."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    @property
    def data_parallel(self) -> tuple[int, int]:
        """(place, size) of this rank among those that hold whole replicas of the model and share a batch between them."""
        return 0, 1

    def cost(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """What forward and backward over these rollouts (int[R], of one group) cost, in any unit, the same on every rank: by it groups
        are shared between data-parallel ranks. Override where more than their tokens counts. It is asked before a rank has the tokens, in
        any thread: lengths and masks are true, ids are below 0, and the contexts of two segments are equal if they are in truth."""
        segments = [segment for row in rows for segment in batch.rollouts[row].segments]
        return sum(len(segment.context_ids) + len(segment.token_ids) for segment in segments)

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """The arrays of all data-parallel ranks, by place; they may differ in length."""
        return [values]

    def timings(self) -> Mapping[str, float]:
        """Seconds spent since the last call by part: ``forward``, ``backward``, ``optimizer``."""
        return {}

    def close(self) -> None:
        """Free everything, give up what is still being saved; called once, also after an error."""


# --- rewards -----------------------------------------------------------------------------------------------------------


class Reward(FromSpec, ABC, described_by=RewardSpec):
    """Judges one rollout. Lives in a worker process that is killed at the deadline, so it may be plain, synchronous code."""

    requires: tuple[str, ...] = ()
    """Columns of the data row that ``score`` reads, as in the spec; a constructor may set others by the options."""

    def open(self) -> None:
        """Called once per worker, before the first score."""

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """A reason why this row cannot be judged (an unparseable gold answer), None where it can; called before training."""
        return None

    def notice(self) -> str:
        """One line on how this reward judges on this machine (the level of its sandbox), printed once at the start; "" for none."""
        return ""

    @abstractmethod
    def score(self, item: RewardInput) -> Score:
        """A verdict. What the text did wrong is a verdict too; raise only where the reward itself is at fault (outcome ``error``)."""

    def score_group(self, items: Sequence[RewardInput]) -> list[Score]:
        """Verdicts on all rollouts of one prompt; override where they are judged against each other, and set ``group_level``."""
        return [self.score(item) for item in items]

    group_level: bool = False

    def close(self) -> None:
        """Called once per worker at the end; a killed worker is not asked."""


class AsyncReward(Reward):
    """Judges by waiting for others (a model behind an address): many rollouts at once, as coroutines of one event loop.

    The pool runs it in one process of its own beside its workers, so the limits hold for the whole node. At the deadline of a rollout its
    coroutine is cancelled; where the loop itself is blocked, the process is killed, and only what blocked it is blamed. Plain ``open``,
    ``check`` and ``close`` are called in that process too; ``requires`` and ``notice`` are those of ``Reward``.
    The limits are class attributes; a constructor may set them from options.
    """

    concurrency: int = 16
    """Rollouts in flight at once."""
    retries: int = 3
    """Further attempts after an exception of ``retryable``; all of them share the deadline."""
    backoff: float = 0.5
    """Seconds before the first further attempt, doubled before each one after it, and varied by half at random."""
    rate_limit: float | None = None
    """Attempts started per second; None: as many as ``concurrency`` admits. Waiting for the first one takes nothing from the deadline."""
    retryable: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, InfrastructureError)
    """What is the fault of the world: tried again, and outcome ``infra`` after the last attempt. Anything else is outcome ``error``."""

    async def open_async(self) -> None:
        """Called once, in the loop, before the first score: the place for a client that belongs to a loop."""

    @abstractmethod
    async def score_async(self, item: RewardInput) -> Score:
        """A verdict; see ``Reward.score``. Must not block: await, or use ``asyncio.to_thread``."""

    async def close_async(self) -> None:
        """Called once, in the loop, at the end."""

    def score(self, item: RewardInput) -> Score:
        """One rollout in a loop of its own, without retries: for tests and for use outside the engine, which never calls it."""
        import asyncio  # a tenth of a second, which no worker of another reward should pay

        return asyncio.run(self._alone(item))

    async def _alone(self, item: RewardInput) -> Score:
        await self.open_async()
        try:
            return await self.score_async(item)
        finally:
            await self.close_async()


# --- algorithms --------------------------------------------------------------------------------------------------------


class AdvantageEstimator(FromSpec, ABC, described_by=AdvantageSpec):
    """Turns the rewards of one global batch into advantages; pure numpy in float64, called once per batch on every rank."""

    needs_greedy: bool = False
    accepts_kl: bool = False
    per: Literal["rollout", "token"] = "rollout"
    """These three: see ``AdvantageSpec``."""
    needs: frozenset[RewardDetail] = frozenset()
    """What it reads of the batch beside rewards, masks and lengths."""

    @abstractmethod
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """float64[R], one per rollout; float64[N], one per token, if the class says ``per = "token"``."""

    def state(self) -> Mapping[str, np.ndarray | float]:
        """What it keeps from one batch to the next (running baselines), by name; {} if it keeps nothing. Saved with the trainer."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave, numbers as float64[]; the next estimates are equal bit for bit. Called if there is a state."""
        raise NotImplementedError(f"{type(self).__name__} gave a state and cannot restore one")


class Loss(FromSpec, ABC, described_by=LossSpec):
    """A policy-gradient loss, per token. Mask, KL penalty, entropy bonus, mismatch correction and aggregation are the core's.

    ``on_policy`` (False: it has a ratio to the policy that sampled), ``sequence_ratio``, ``one_advantage``: see ``LossSpec``.
    ``reads_tokens``: whether ``prepare``, if it has one, looks at what the batch's rollouts say (ids, texts, versions or details of their
    segments). Say False if it does not: then each of several trainer ranks gets the tokens of its own share alone."""

    needs: frozenset[Need] = frozenset()
    reads_tokens: bool = True
    on_policy: bool | None = None
    sequence_ratio: bool = False
    one_advantage: bool = False

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Arrays float32[N] chosen over the whole global batch (ranks, selections); they come back as ``LossBatch.extras``."""
        return {}

    @abstractmethod
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n] loss per token, to minimise; optionally with named per-token values [n] that are logged as batch means."""


class RowSource(ABC):
    """Reads the rows of a data set; made with its options, or with nothing if it has none."""

    @abstractmethod
    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """(number from 1, row) of each row, in the same order each time it is asked.

        A row is what one line of a JSONL file holds: a mapping with ``messages`` and the columns that the rewards need. A row that cannot
        be read is a ``BadRow`` with the reason, in place of the mapping; then the others are still looked at. What cannot be read at
        all raises DataError.

        :param path: as the user typed it, the prefix included.
        """


class Tracker(ABC):
    """Receives every metric record. One that raises, its constructor too, is reported once, switched off and named in the summary."""

    @abstractmethod
    def open(self, run: RunInfo) -> None:
        """The run starts. If ``run.step`` is not 0 it goes on: continue what was kept of this run, and forget the records of later steps,
        which come again; ``run.records()`` are those up to there."""

    @abstractmethod
    def log(self, record: Mapping[str, Any]) -> None:
        """One record: ``{"step": 3, "reward/mean": 4.1, …}``."""

    def close(self) -> None:  # noqa: B027
        """The run ended, well or not."""
