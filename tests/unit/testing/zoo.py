"""Each planted bug, the suite pointed at it, and the rule that must catch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suites_of_fakes import FakeCollectiveSuite, FakeEngineSuite, FakeEstimatorSuite, FakeLossSuite, FakeRewardSuite, FakeTrainerSuite
from zoo_backends import (
    AbortsInSilence,
    AnnouncesAnotherOrder,
    ClaimsPipelines,
    ClaimsToScoreNothing,
    ClimbsTheLoss,
    CostsByItsTokens,
    DrawsNoise,
    DrawsTheUnlikely,
    DropsStopToken,
    ExportsUnrounded,
    FaultyEngineSuite,
    FollowsThePolicy,
    ForgetsCancelled,
    ForgetsMoments,
    GoesOnAfterStopString,
    HandsOutTheFirst,
    IgnoresCancel,
    IgnoresNoise,
    KeepsGradients,
    LabelsByNewest,
    LoadsTheReference,
    LooksAtTheFirst,
    LosesMomentsAsleep,
    MovesThePolicy,
    NormAfterClipping,
    NormalisesPerForward,
    OffByOne,
    OneBucket,
    ReferenceMoves,
    ReferenceOfTheCheckpoint,
    RunsToTheEnd,
    SamplesAtZero,
    SavesHalfPrecision,
    SavesTheFirstReference,
    SavesTheReferenceOnce,
    SavesWhatItHasThen,
    ScoresBeforeMinP,
    SharesNoise,
    SyncsByHalf,
    SyncsWholly,
    TakesTheFirstTemperature,
    TrainsAtTemperatureOne,
    TrainsMasked,
    UpdatesAtTemperatureOne,
    UpdatesAtTheMeanTemperature,
)
from zoo_bugs import ENGINES, Bug
from zoo_controllers import DeclaresNothing, ForgetsItsCount, KeepsAnObject, NeverDecides, ReadsTheClock, ScalesBelowZero
from zoo_entropies import EntropySuite, ForgetsToDeclareEntropy, SurpriseForEntropy, TurnsTheEntropies
from zoo_filters import AddsItsMark, AnswersWithNumbers, BeatsTheLastGroup, DrawsLots, ForgetsTheFailed, RanksTheFailed, WantsTheImpossible
from zoo_losses import CountsUpdatesInSecret, KeepsItsScale, SavesTheFigures, WantsEveryFigure
from zoo_methods import (
    AcceptsSubstring,
    Ascends,
    AveragesInSilence,
    BlamesItself,
    BreaksTiesByPlace,
    CarriesAGradient,
    CentresInPlace,
    CentresOverTheBatch,
    ChangesColumns,
    ClampsWide,
    ClipsWhatItIsLent,
    CountsCalls,
    CountsMasked,
    CountsWhatIsMasked,
    DetachesTheRatio,
    DividesByZero,
    DrawsByPlace,
    DrawsRarelyByPlace,
    DropsTokens,
    FlatBeyondItsClamp,
    ForgetsToSave,
    GroupOutOfOrder,
    KeysByGroupNumber,
    NeedsByName,
    NeedsOldInSilence,
    NeedsReferenceInSilence,
    NeedsSortedGroups,
    NeverHolds,
    NoAccuracy,
    NormalisesOverTheBatch,
    NotANumber,
    Overflows,
    OverwritesExtras,
    OverwritesLogprobs,
    OverwritesOld,
    PerTokenWithoutAWord,
    PreparesNan,
    PreparesPerRollout,
    RaisesOnEmpty,
    ReadsTokensInSilence,
    ReadsUndeclared,
    ReplacesExtras,
    RoundsOff,
    RunningBaseline,
    SavesObjects,
    ScalesInPlace,
    ScoreFunction,
    SharesItsState,
    SinglePrecision,
    SumsTokens,
    SumsUp,
    TakesEverySecond,
    TakesGreedyAsItIs,
    TurnsNoneIntoNan,
    UpsideDown,
    WeighsByGroupNumber,
    WhitensPerMicroBatch,
    WritesAfterUse,
    WritesAroundTheFlag,
)
from zoo_model_hooks import (
    AddsALayer,
    AddsTokens,
    Divides,
    DrawsAnew,
    FreezesAll,
    FreezesInTurn,
    FreezesWhatIsZero,
    ScalesLogits,
)
from zoo_optimizers import CHOSEN_ZOO, OPTIMIZER_ZOO
from zoo_samplers import (
    AnswersWithAnId,
    CountsForAll,
    ForgetsItsPlace,
    GivesItsOwnList,
    HoldsALock,
    KeepsASet,
    RaisesTheLevel,
    RunsPastTheEnd,
    ThrowsDice,
    WaitsForResults,
)
from zoo_schedules import BelowZeroAfterTheEnd, CountsItsCalls, ForgetsTheFirstStep
from zoo_sources import ForgetsTheSource, KeepsNoNormalisers, TurnsTheSources
from zoo_updates import (
    ChecksAtTheEnd,
    CountsTensors,
    JoinsOnce,
    JoinsWhatItDoesNotName,
    KeepsMissing,
    KeepsTheArrays,
    KeepsTheLastBucket,
    NamesNoTensor,
    ServesTorn,
    SwapsHalf,
    TakesNothing,
)

from rlcore.contracts.interfaces import AdvantageEstimator
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.specs import InFlight
from rlcore.testing import (
    AggregationSuite,
    ControllerSuite,
    CorrectionSuite,
    FakeInference,
    FakeTraining,
    GroupFilterSuite,
    KlSuite,
    LearningRateScheduleSuite,
    ModelHookSuite,
    OptimizerSuite,
    SamplerSuite,
)
from rlcore.testing.algorithms.fake_algorithms import FakeLoss
from rlcore.testing.training.fake_pipeline import FakePipeline
from rlcore.testing.training.plain_objective import PlainObjective


@dataclass(frozen=True)
class Specimen:
    """A suite pointed at a bug, the rule that must fail, and a pattern that its message must contain."""

    name: str
    suite: Any
    rule: str
    says: str = ""


def _reward(bug: type[Reward], rule: str) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeRewardSuite,), {"make": lambda self: bug()}), rule)


def _estimator(bug: type[AdvantageEstimator], rule: str, says: str = "") -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeEstimatorSuite,), {"make": lambda self: bug()}), rule, says)


def _loss(bug: type[FakeLoss], rule: str, says: str = "") -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeLossSuite,), {"make": lambda self: bug()}), rule, says)


def _part(base: type, bug: type, rule: str, says: str = "") -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (base,), {"make": lambda self, *bounds: bug(*bounds)}), rule, says)


def _engine(bug: type[FakeInference], rule: str, in_flight: InFlight = InFlight.FINISH) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeEngineSuite,), {"engine": bug, "in_flight": in_flight}), rule)


def _planted(bug: Bug) -> Specimen:
    suite = type(f"{bug.engine.__name__}Suite", (FakeEngineSuite,), {"engine": bug.engine, **bug.settings})
    return Specimen(bug.engine.__name__, suite, bug.rule, bug.says)


def _update(bug: type[FakeInference], rule: str, says: str, *, swaps: bool = True) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeEngineSuite,), {"engine": bug, "swaps": swaps}), rule, says)


def _joining(bug: type[FakeInference], rule: str, says: str) -> Specimen:
    suite = type(f"{bug.__name__}TransferSuite", (OpenedSuite,), {"engine": bug, "rule": rule, "patience": 2.0})
    return Specimen(bug.__name__, suite, "opened", says)


def _fault(fault: str, rule: str) -> Specimen:
    return Specimen(f"faulty-{fault}", type(f"{fault.capitalize()}Suite", (FaultyEngineSuite,), {"fault": fault}), rule)


def _entropies(bug: type[FakePipeline]) -> Specimen:
    suite = type(f"{bug.__name__}Suite", (EntropySuite,), {"pipeline": bug})
    return Specimen(bug.__name__, suite, "test_entropies_are_those_of_an_update", "an entropy is off by")


def _trainer(bug: type[FakeTraining], rule: str, says: str = "") -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeTrainerSuite,), {"trainer": bug}), rule, says)


def _pipeline(bug: type[FakePipeline], rule: str, says: str) -> Specimen:
    settings = {"make": lambda self, context: bug(context), "objective": lambda self: PlainObjective(), "spec": None}
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeTrainerSuite,), settings), rule, says)


class OpenedSuite(FakeCollectiveSuite):
    """Runs one rule between set-up and tear-down, as pytest does."""

    rule = ""

    def opened(self) -> None:
        self.setup_method()
        try:
            getattr(self, self.rule)()
        finally:
            self.teardown_method()


ZOO = [
    _reward(AcceptsSubstring, "test_hostile_text_earns_nothing"),
    _reward(RaisesOnEmpty, "test_never_raises_on_hostile_text"),
    _reward(CountsCalls, "test_deterministic_and_stateless"),
    _reward(ReadsUndeclared, "test_reads_declared_columns_only"),
    _reward(BlamesItself, "test_never_raises_on_hostile_text"),
    _reward(NotANumber, "test_never_raises_on_hostile_text"),
    _reward(ChangesColumns, "test_columns_are_not_changed"),
    _reward(NoAccuracy, "test_accuracy_as_declared"),
    _reward(GroupOutOfOrder, "test_group_scores_in_order"),
    _estimator(CountsMasked, "test_masked_rollouts_have_no_influence"),
    _estimator(DividesByZero, "test_finite_at_the_edges"),
    _estimator(RoundsOff, "test_equal_rewards_give_zero"),
    _estimator(NeedsSortedGroups, "test_follows_a_permutation"),
    _estimator(WeighsByGroupNumber, "test_groups_may_be_renumbered"),
    _estimator(RunningBaseline, "test_deterministic"),
    _estimator(ForgetsToSave, "test_state_is_saved_and_restored", "continues differently"),
    _estimator(SavesObjects, "test_state_is_saved_and_restored", "cannot be saved"),
    _estimator(SharesItsState, "test_deterministic", "two estimates of one batch differ"),
    _estimator(NeedsByName, "test_needs_are_known", "needs holds"),
    _estimator(SinglePrecision, "test_shape_and_type"),
    _estimator(PerTokenWithoutAWord, "test_shape_and_type", 'per = "rollout" says'),
    _estimator(UpsideDown, "test_better_reward_is_not_worse"),
    _estimator(CentresInPlace, "test_inputs_are_not_changed"),
    _part(AggregationSuite, CountsWhatIsMasked, "test_what_is_outside_the_loss_has_no_influence"),
    _part(AggregationSuite, SumsTokens, "test_a_batch_twice_is_the_batch", "set mean = False"),
    _part(KlSuite, FlatBeyondItsClamp, "test_finite_however_far", "values at gaps"),
    _part(KlSuite, ScoreFunction, "test_in_expectation_the_penalty_has_the_gradient_of_its_divergence"),
    _part(KlSuite, CentresOverTheBatch, "test_each_token_is_on_its_own"),
    _part(LearningRateScheduleSuite, CountsItsCalls, "test_a_step_is_on_its_own"),
    _part(LearningRateScheduleSuite, BelowZeroAfterTheEnd, "test_every_share_is_a_number_of_at_least_0", "is -"),
    _part(LearningRateScheduleSuite, ForgetsTheFirstStep, "test_the_run_trains"),
    _part(ControllerSuite, ForgetsItsCount, "test_a_resumed_run_decides_the_same", "resumed after update"),
    _part(ControllerSuite, ReadsTheClock, "test_the_same_run_has_the_same_decisions"),
    _part(ControllerSuite, DeclaresNothing, "test_decisions_are_of_the_contract", "in neither sets nor scales"),
    _part(ControllerSuite, ScalesBelowZero, "test_decisions_are_of_the_contract", "the factor of training.learning_rate is -"),
    _part(ControllerSuite, NeverDecides, "test_it_decides_something", "override figures"),
    _part(ControllerSuite, KeepsAnObject, "test_a_resumed_run_decides_the_same", "is of type object"),
    _part(SamplerSuite, ForgetsItsPlace, "test_a_resumed_run_draws_the_same", "resumed after update 1"),
    _part(SamplerSuite, ThrowsDice, "test_the_same_run_has_the_same_draws"),
    _part(SamplerSuite, CountsForAll, "test_the_same_run_has_the_same_draws"),
    _part(SamplerSuite, RunsPastTheEnd, "test_draws_are_of_the_items", "item 10 of 10"),
    _part(SamplerSuite, RaisesTheLevel, "test_draws_are_of_the_items", "level 1 of 1"),
    _part(SamplerSuite, AnswersWithAnId, "test_draws_are_of_the_items", "a whole number or a Draw is due"),
    _part(SamplerSuite, WaitsForResults, "test_draws_are_of_the_items", "item -1"),
    _part(SamplerSuite, KeepsASet, "test_a_resumed_run_draws_the_same", "not of JSON values"),
    _part(SamplerSuite, GivesItsOwnList, "test_a_state_is_of_its_moment", "later draws made it"),
    _part(SamplerSuite, HoldsALock, "test_it_can_be_sent_to_another_process", "cannot be pickled"),
    _part(GroupFilterSuite, AnswersWithNumbers, "test_one_bool_for_each_rollout", "is not a bool"),
    _part(GroupFilterSuite, ForgetsTheFailed, "test_one_bool_for_each_rollout", "2 values for the 4 rollouts"),
    _part(GroupFilterSuite, WantsTheImpossible, "test_something_trains"),
    _part(GroupFilterSuite, DrawsLots, "test_the_same_group_has_the_same_answer"),
    _part(GroupFilterSuite, BeatsTheLastGroup, "test_other_groups_do_not_matter"),
    _part(GroupFilterSuite, AddsItsMark, "test_the_group_is_not_changed"),
    _part(GroupFilterSuite, RanksTheFailed, "test_what_cannot_train_has_no_influence"),
    _part(ModelHookSuite, DrawsAnew, "test_it_is_deterministic", "other values of 'lm_head.weight'"),
    _part(ModelHookSuite, FreezesInTurn, "test_it_is_deterministic", "freeze other parameters"),
    _part(ModelHookSuite, FreezesAll, "test_something_trains"),
    _part(ModelHookSuite, AddsALayer, "test_names_and_shapes_are_those_of_the_config", "extra.bias"),
    _part(ModelHookSuite, AddsTokens, "test_it_answers_with_logits", r"\(1, 12, 61\) are due"),
    _part(ModelHookSuite, Divides, "test_it_answers_with_logits", "not finite"),
    _part(ModelHookSuite, ScalesLogits, "test_transformers_loads_what_is_saved"),
    _part(ModelHookSuite, FreezesWhatIsZero, "test_a_resumed_run_trains_the_same_parameters", "lm_head.weight"),
    *(_part(OptimizerSuite, bug, rule, says) for bug, (rule, says) in OPTIMIZER_ZOO.items()),
    *(_pipeline(bug, rule, says) for bug, (rule, says) in CHOSEN_ZOO.items()),
    _part(CorrectionSuite, CarriesAGradient, "test_a_weight_carries_no_gradient"),
    _part(CorrectionSuite, NormalisesOverTheBatch, "test_other_rollouts_do_not_matter"),
    _part(CorrectionSuite, NeverHolds, "test_the_weights_stay_within_their_bounds"),
    _estimator(TakesGreedyAsItIs, "test_finite_without_a_greedy_reward", "without a greedy reward"),
    _loss(WhitensPerMicroBatch, "test_micro_batches_add_up"),
    _loss(WhitensPerMicroBatch, "test_rollouts_do_not_influence_each_other"),
    _loss(KeepsItsScale, "test_state_is_saved_and_restored", "must return what updated"),
    _loss(CountsUpdatesInSecret, "test_state_is_saved_and_restored", "after the next update"),
    _loss(SavesTheFigures, "test_state_is_saved_and_restored", "cannot be saved"),
    _loss(ForgetsToDeclareEntropy, "test_prepare_reads_what_is_declared", "set prepares_entropy = True"),
    _loss(WantsEveryFigure, "test_an_update_may_lack_figures"),
    _loss(Overflows, "test_finite_at_extreme_ratios"),
    _loss(Ascends, "test_follows_the_advantage"),
    _loss(AveragesInSilence, "test_a_loss_that_combines_tokens_says_so", "declare whole_rollouts = True"),
    _loss(SumsUp, "test_shape_and_type"),
    _loss(DetachesTheRatio, "test_gradient_is_the_derivative"),
    _loss(ScalesInPlace, "test_inputs_are_not_changed", "writes into advantages"),
    _loss(WritesAfterUse, "test_inputs_are_not_changed", "writes into advantages"),
    _loss(ClampsWide, "test_inputs_are_not_changed", "writes into advantages"),
    _loss(OverwritesOld, "test_inputs_are_not_changed", "writes into old_logprobs"),
    _loss(OverwritesLogprobs, "test_inputs_are_not_changed", "writes into logprobs"),
    _loss(OverwritesExtras, "test_inputs_are_not_changed", r"writes into extras\['keep'\]"),
    _loss(ReplacesExtras, "test_inputs_are_not_changed", r"writes into extras\['keep'\]"),
    _loss(DropsTokens, "test_deterministic_and_stateless"),
    _loss(PreparesPerRollout, "test_prepare_gives_arrays_per_token"),
    _loss(PreparesNan, "test_prepare_gives_arrays_per_token", "not finite"),
    _loss(ClipsWhatItIsLent, "test_prepare_gives_arrays_per_token", "writes into weights"),
    _loss(WritesAroundTheFlag, "test_prepare_gives_arrays_per_token", "writes into rollout_logprobs"),
    _loss(TakesEverySecond, "test_prepare_does_not_look_at_places", "where a token stands"),
    _loss(DrawsByPlace, "test_prepare_does_not_look_at_places", "where a token stands"),
    _loss(DrawsRarelyByPlace, "test_prepare_does_not_look_at_places", "where a token stands"),
    _loss(KeysByGroupNumber, "test_prepare_does_not_look_at_places", "where a token stands"),
    _loss(BreaksTiesByPlace, "test_prepare_does_not_look_at_places", "where a token stands"),
    _loss(NeedsOldInSilence, "test_prepare_reads_what_is_declared", r"Need\.OLD to its needs"),
    _loss(NeedsOldInSilence, "test_shape_and_type", r"Need\.OLD to its needs"),
    _loss(TurnsNoneIntoNan, "test_prepare_reads_what_is_declared", r"Need\.OLD to its needs"),
    _loss(ReadsTokensInSilence, "test_prepare_reads_tokens_only_if_it_says_so", "declares reads_tokens = False"),
    _loss(NeedsReferenceInSilence, "test_prepare_reads_what_is_declared", r"Need\.REFERENCE to its needs"),
    *map(_planted, ENGINES),
    _engine(ClaimsToScoreNothing, "test_the_spec_declares_the_capabilities_of_the_class"),
    _engine(RunsToTheEnd, "test_streams"),
    _engine(SharesNoise, "test_noise_does_not_depend_on_batching"),
    _engine(IgnoresNoise, "test_noise_differs_between_rollouts"),
    _engine(DropsStopToken, "test_length_and_finish"),
    _engine(GoesOnAfterStopString, "test_stop_strings"),
    _engine(SamplesAtZero, "test_greedy_takes_the_likeliest_token"),
    _engine(DrawsTheUnlikely, "test_min_p_cuts_what_is_too_unlikely"),
    _engine(ScoresBeforeMinP, "test_min_p_cuts_what_is_too_unlikely"),
    _engine(ForgetsCancelled, "test_cancel"),
    _engine(IgnoresCancel, "test_cancel"),
    _engine(LabelsByNewest, "test_update_with_requests_in_flight"),
    _engine(LabelsByNewest, "test_update_with_requests_in_flight", InFlight.RESUME),
    _engine(AbortsInSilence, "test_update_with_requests_in_flight"),
    _update(KeepsTheArrays, "test_an_update_keeps_nothing_of_a_bucket", "with the arrays of a bucket"),
    _update(KeepsTheLastBucket, "test_an_update_of_many_buckets_is_one_of_one_bucket", "scores otherwise than one of one"),
    _update(ChecksAtTheEnd, "test_refuses_a_tensor_of_another_shape", "begin_update took a manifest with a tensor of another shape"),
    _update(ChecksAtTheEnd, "test_refuses_a_snapshot_that_is_not_whole", "begin_update took a manifest without one"),
    _update(NamesNoTensor, "test_refuses_a_snapshot_that_is_not_whole", "without naming it"),
    _update(NamesNoTensor, "test_names_a_tensor_that_did_not_come", "does not name tensor"),
    _update(KeepsMissing, "test_names_a_tensor_that_did_not_come", "did not come"),
    _update(CountsTensors, "test_refuses_a_bucket_that_comes_twice", "a bucket that came twice was taken for that of"),
    _update(SwapsHalf, "test_an_update_that_breaks_off_serves_nothing_torn", "it swaps, and serves other weights"),
    _update(SwapsHalf, "test_names_a_tensor_that_did_not_come", "it swaps, and serves other weights"),
    _update(ServesTorn, "test_an_update_that_breaks_off_serves_nothing_torn", "is not a RunError", swaps=False),
    _update(ServesTorn, "test_refuses_a_bucket_that_comes_twice", "is not a RunError", swaps=False),
    _update(JoinsOnce, "test_joins_its_own_transfer_again_and_again", "did not join the group of epoch 2"),
    _update(TakesNothing, "test_joins_its_own_transfer_again_and_again", "the scores of version 1, of another group, are those before"),
    _update(JoinsWhatItDoesNotName, "test_joins_its_own_transfer_again_and_again", "names host alone, and connect"),
    _joining(JoinsOnce, "test_a_late_engine_gets_the_newest_version", ""),
    _joining(JoinsOnce, "test_an_engine_that_comes_back_joins_again", "serves version -1 2 s after version 2 was"),
    _joining(TakesNothing, "test_every_engine_serves_what_was_published", "says that it serves version 1, and its scores are off"),
    _joining(JoinsWhatItDoesNotName, "test_an_engine_can_join_it", "the spec says way = 'fake_collective', the engine takes weights by"),
    _fault("stale", "test_update_serves_the_new_weights"),
    _fault("partial", "test_every_tensor_is_taken"),
    _fault("behind", "test_update_serves_the_new_weights"),
    _fault("torn", "test_an_update_that_breaks_off_serves_nothing_torn"),
    _fault("loses", "test_every_request_is_answered_once"),
    _fault("repeats", "test_every_request_is_answered_once"),
    _entropies(SurpriseForEntropy),
    _entropies(TurnsTheEntropies),
    _pipeline(ForgetsTheSource, "test_every_token_keeps_its_source", "the source of its tokens is lost in a micro-batch"),
    _pipeline(TurnsTheSources, "test_every_token_keeps_its_source", "have the source of another token"),
    _pipeline(KeepsNoNormalisers, "test_every_token_keeps_its_source", "the normalisers are Normalisers"),
    _trainer(ClaimsPipelines, "test_the_spec_declares_the_capabilities_of_the_class"),
    _trainer(CostsByItsTokens, "test_cost_needs_no_tokens", "without its tokens"),
    _trainer(NormalisesPerForward, "test_gradient_does_not_depend_on_the_cut"),
    _trainer(TrainsMasked, "test_masked_rollouts_do_not_train"),
    _trainer(ClimbsTheLoss, "test_update_lowers_the_objective"),
    _trainer(TrainsAtTemperatureOne, "test_logprobs_are_at_the_temperature"),
    _trainer(TrainsAtTemperatureOne, "test_each_rollout_is_scored_at_its_own_temperature"),
    _trainer(TakesTheFirstTemperature, "test_each_rollout_is_scored_at_its_own_temperature"),
    _trainer(UpdatesAtTemperatureOne, "test_each_rollout_trains_at_its_own_temperature"),
    _trainer(UpdatesAtTheMeanTemperature, "test_each_rollout_trains_at_its_own_temperature"),
    _trainer(OffByOne, "test_logprobs_are_those_of_the_probe"),
    _trainer(HandsOutTheFirst, "test_an_update_shows_in_the_next_source"),
    _trainer(OneBucket, "test_buckets_hold_no_more_than_they_may"),
    _trainer(AnnouncesAnotherOrder, "test_weights_are_whole_records", "was not published"),
    _trainer(ForgetsMoments, "test_continues_exactly"),
    _trainer(SavesWhatItHasThen, "test_a_save_is_of_the_moment_that_it_began", "with what an update made of it meanwhile"),
    _trainer(LosesMomentsAsleep, "test_sleeps_and_wakes", "the weights differ after sleep and wake"),
    _trainer(SavesHalfPrecision, "test_saved_model_is_the_policy"),
    _trainer(ExportsUnrounded, "test_an_export_is_the_policy_rounded"),
    _trainer(NormAfterClipping, "test_metrics"),
    _trainer(SyncsByHalf, "test_a_synced_reference_is_the_policy", r"after sync_reference\(1.0\) policy and reference differ"),
    _trainer(FollowsThePolicy, "test_a_synced_reference_is_the_policy", "an update after sync_reference moves the reference"),
    _trainer(SyncsWholly, "test_a_share_mixes_the_weights", "a share of 3/4 makes the reference the policy"),
    _trainer(MovesThePolicy, "test_a_share_mixes_the_weights"),
    _trainer(SavesTheFirstReference, "test_a_checkpoint_holds_a_synced_reference", "after a resume the reference is"),
    _trainer(SavesTheReferenceOnce, "test_a_checkpoint_holds_a_synced_reference", "after a second resume the reference is"),
    _trainer(ReferenceMoves, "test_reference_stays", "moved with the policy"),
    _trainer(ReferenceOfTheCheckpoint, "test_reference_stays", "context.reference is not"),
    _trainer(LoadsTheReference, "test_reference_stays", "after load the reference is no longer"),
    _trainer(LooksAtTheFirst, "test_order_of_rollouts_does_not_matter"),
    _trainer(KeepsGradients, "test_continues_exactly"),
    _trainer(DrawsNoise, "test_two_runs_are_equal"),
]
