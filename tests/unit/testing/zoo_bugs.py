"""What is wrong with the engines of the zoo, which rule is meant for each, and which others it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zoo_engines import (
    BlendsVersions,
    CancelsAllForNone,
    ClosesIdleAlone,
    ContinuesFromTheFirstNumber,
    CopiesItsHead,
    CountsVersions,
    CutsLongContexts,
    DeclaresLoosely,
    DrawsAnew,
    DropsStopString,
    ForgetsWhatItPrinted,
    HangsInClose,
    HangsInPoll,
    IgnoresTopP,
    KeepsAnswersForLater,
    KeepsItsPrefixes,
    KeepsOneMore,
    KeepsThePlace,
    LeavesAPort,
    LeavesAProcess,
    LeavesMemory,
    LogprobsBeforeTemperature,
    LogprobsOffByOne,
    NeedsTwoTokens,
    OverrunsItsRoom,
    ReadsItsAnswers,
    ReadsItsContexts,
    RemembersAborted,
    ResumesOnOldKeys,
    ScoresBeforeTheCut,
    ScoresInDouble,
    SeedsAddUp,
    SeedsOfThirtyTwoBits,
    ServesAnotherModel,
    ServesTheOldOnceMore,
    StartsAtOne,
    StopsOneEarly,
    TakesHalfASubmit,
    TakesTheLongestLimit,
    TellsTheTokenBefore,
    TellsTheVocabulary,
)
from zoo_requests import (
    CancelsOneByOne,
    CutsTopPByTheWhole,
    GreedyForAll,
    HoldsItsTemperature,
    LooksForAll,
    LooksForTheFirst,
    LooksForTheNewest,
    LooksIntoTheContext,
    MakesNumbers,
    RemembersItsGreed,
    StopsBehindAStop,
    SureOfItsGreed,
    TakesBusyIds,
    TakesTheLastOfTwo,
)

from rlcore.contracts.specs import InFlight
from rlcore.testing import FakeInference


@dataclass(frozen=True)
class Bug:
    """An engine, the rule that must find what is wrong with it, what the rule must say, and how the suite that points at it is set."""

    engine: type[FakeInference]
    rule: str
    says: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


RESUMES, CONTINUES, TELLS = {"in_flight": InFlight.RESUME}, {"in_flight": InFlight.ABORT, "continues": True}, {"tells": True}
HURRIES = {"deadline": 1.0}

ENGINES = [
    Bug(DeclaresLoosely, "test_capabilities_are_declared", "must be an InferenceCapabilities"),
    Bug(KeepsAnswersForLater, "test_poll_of_an_idle_engine_returns_nothing"),
    Bug(CancelsAllForNone, "test_an_empty_list_of_requests_is_nothing", r"cancel\(\[\]\) aborted a request"),
    Bug(StopsOneEarly, "test_length_and_finish", "finish is length after 5 tokens of 6"),
    Bug(NeedsTwoTokens, "test_one_token_is_an_answer", "2 tokens where 1 are the limit"),
    Bug(TakesTheLongestLimit, "test_each_request_has_its_own_limit", "6 tokens where [12] are the limit"),
    Bug(CutsLongContexts, "test_refuses_a_context_that_leaves_no_room", "submit took a context of 64 tokens"),
    Bug(TakesHalfASubmit, "test_refuses_a_context_that_leaves_no_room"),
    Bug(OverrunsItsRoom, "test_an_answer_ends_where_the_room_ends", "where [123] are the limit"),
    Bug(DropsStopString, "test_stop_strings", "neither a stop token nor the stop string"),
    Bug(ReadsItsAnswers, "test_token_ids_are_not_read_as_text", "they were read as text"),
    Bug(ReadsItsContexts, "test_token_ids_are_not_read_as_text", "whose context does not survive"),
    Bug(ScoresInDouble, "test_score_is_a_log_probability", "scores are float64"),
    Bug(LogprobsOffByOne, "test_logprobs_are_those_of_score", "off by"),
    Bug(ServesAnotherModel, "test_score_is_the_trainers_forward_pass", "nats from the trainer's"),
    Bug(LogprobsBeforeTemperature, "test_logprobs_are_at_the_sampling_temperature", "temperature alone at temperature 0.1"),
    Bug(ScoresBeforeTheCut, "test_top_p_keeps_the_likeliest_tokens", "over what is kept it is"),
    Bug(ScoresBeforeTheCut, "test_top_k_keeps_the_likeliest_tokens", "over what is kept it is"),
    Bug(IgnoresTopP, "test_top_p_keeps_the_likeliest_tokens"),
    Bug(KeepsOneMore, "test_top_k_keeps_the_likeliest_tokens"),
    Bug(TellsTheVocabulary, "test_kept_sets_are_what_was_drawn_from", "and the set is told as", TELLS),
    Bug(TellsTheTokenBefore, "test_kept_sets_are_what_was_drawn_from", "", TELLS),
    Bug(DrawsAnew, "test_noise_repeats", "asked twice with one noise"),
    Bug(SeedsAddUp, "test_no_two_requests_share_a_stream", "draw the same 8 tokens"),
    Bug(SeedsOfThirtyTwoBits, "test_no_two_requests_share_a_stream", "draw the same 8 tokens"),
    Bug(KeepsThePlace, "test_a_cancelled_request_frees_its_place", "were never answered", {"patience": 40}),
    Bug(RemembersAborted, "test_an_aborted_request_can_be_asked_again", "comes back aborted"),
    Bug(ContinuesFromTheFirstNumber, "test_a_continued_request_goes_on_as_if_nothing_had_been_aborted", "drew other tokens", CONTINUES),
    Bug(ForgetsWhatItPrinted, "test_a_stop_string_may_begin_in_what_is_continued", "was not seen", CONTINUES),
    Bug(HangsInPoll, "test_every_call_comes_back_in_time", "poll takes longer than the deadline", HURRIES),
    Bug(HangsInClose, "test_close_with_requests_in_flight", "close takes longer than the deadline", HURRIES),
    Bug(StartsAtOne, "test_serves_version_zero_first"),
    Bug(CountsVersions, "test_update_serves_the_new_weights", "update to version 5 reports 2"),
    Bug(CountsVersions, "test_a_late_engine_takes_the_newest_version"),
    Bug(CopiesItsHead, "test_after_an_update_it_is_the_trainers_model", "nats from the trainer's"),
    Bug(BlendsVersions, "test_an_update_is_a_fresh_engine", "score differently"),
    Bug(ServesTheOldOnceMore, "test_update_serves_the_new_weights", "log probabilities after the update"),
    Bug(KeepsItsPrefixes, "test_no_cached_prefix_outlives_an_update", "keys and values of the old weights were used"),
    Bug(ResumesOnOldKeys, "test_resumed_tokens_are_of_the_new_weights_alone", "labels version 1", RESUMES),
    Bug(CancelsOneByOne, "test_cancel", "was answered twice"),
    Bug(CutsTopPByTheWhole, "test_top_p_is_of_what_top_k_leaves", "of what top_k 3 leaves at temperature"),
    Bug(GreedyForAll, "test_greedy_and_sampled_requests_run_side_by_side", "eight samples of one prompt are all the same"),
    Bug(HoldsItsTemperature, "test_logprobs_are_at_the_sampling_temperature", "at temperature 0.1"),
    Bug(LooksForAll, "test_stop_strings", "beside a request with '"),
    Bug(LooksForTheFirst, "test_stop_strings", "of three"),
    Bug(LooksForTheNewest, "test_stop_strings", "beside a request with"),
    Bug(LooksIntoTheContext, "test_the_context_ends_no_answer", "which is in the context"),
    Bug(MakesNumbers, "test_weights_that_are_not_finite_serve_nothing", "tokens are drawn from weights"),
    Bug(RemembersItsGreed, "test_update_serves_the_new_weights", "below the likeliest after the update"),
    Bug(StopsBehindAStop, "test_the_context_ends_no_answer", "a stop token in the context ended"),
    Bug(SureOfItsGreed, "test_greedy_takes_the_likeliest_token", "greedy g0, at temperature 1"),
    Bug(TakesBusyIds, "test_refuses_an_id_that_is_in_flight", "submit took 'r0'"),
    Bug(TakesTheLastOfTwo, "test_refuses_an_id_that_is_in_flight", "submit took 'r1'"),
    Bug(ClosesIdleAlone, "test_close_with_requests_in_flight", "the engine is busy"),
    Bug(LeavesAProcess, "test_close_leaves_nothing_behind", "there is still process"),
    Bug(LeavesAPort, "test_close_leaves_nothing_behind", "there is still listening port"),
    Bug(LeavesMemory, "test_close_leaves_nothing_behind", "there is still shared memory"),
]

ALSO = {
    "KeepsAnswersForLater": "cancel",
    "NeedsTwoTokens": "each_request_has_its_own_limit",
    "TakesTheLongestLimit": "noise_does_not_depend_on_batching",
    "CutsLongContexts": "an_answer_ends_where_the_room_ends",
    "TakesHalfASubmit": "refuses_an_id_that_is_in_flight",
    "DropsStopString": "the_context_ends_no_answer",
    "ScoresBeforeTheCut": "top_p_is_of_what_top_k_leaves",
    "IgnoresTopP": "top_p_is_of_what_top_k_leaves",
    "KeepsOneMore": "top_p_is_of_what_top_k_leaves",
    "TellsTheTokenBefore": "weights_that_are_not_finite_serve_nothing",
    "CopiesItsHead": "update_serves_the_new_weights",
    "LooksForAll": "the_context_ends_no_answer",
    "SamplesAtZero": "greedy_and_sampled_requests_run_side_by_side update_serves_the_new_weights",
    "IgnoresCancel": "weights_that_are_not_finite_serve_nothing",
    "ReadsItsContexts": "no_cached_prefix_outlives_an_update",
    "ContinuesFromTheFirstNumber": "a_stop_string_may_begin_in_what_is_continued",
    "StartsAtOne": "an_update_that_breaks_off_serves_nothing_torn refuses_a_snapshot_that_is_not_whole refuses_a_tensor_of_another_shape "
    "update_with_requests_in_flight",
    "ServesTheOldOnceMore": "after_an_update_it_is_the_trainers_model no_cached_prefix_outlives_an_update "
    "weights_that_are_not_finite_serve_nothing",
    "RunsToTheEnd": "update_with_requests_in_flight weights_that_are_not_finite_serve_nothing",
    "DropsStopToken": "an_answer_ends_where_the_room_ends one_token_is_an_answer stop_strings the_context_ends_no_answer "
    "update_serves_the_new_weights",
    "ForgetsCancelled": "a_cancelled_request_frees_its_place an_aborted_request_can_be_asked_again",
    "LabelsByNewest": "resumed_tokens_are_of_the_new_weights_alone",
    "KeepsTheLastBucket": "an_update_keeps_nothing_of_a_bucket names_a_tensor_that_did_not_come",
    "NamesNoTensor": "refuses_a_tensor_of_another_shape",
    "SwapsHalf": "refuses_a_bucket_that_comes_twice",
    "ServesTorn": "names_a_tensor_that_did_not_come serves_nothing_between_sleep_and_update",
    "JoinsOnce": "the_spec_declares_the_capabilities_of_the_class",
    "TakesNothing": "after_an_update_it_is_the_trainers_model every_tensor_is_taken the_spec_declares_the_capabilities_of_the_class "
    "update_serves_the_new_weights weights_that_are_not_finite_serve_nothing",
    "faulty-stale": "after_an_update_it_is_the_trainers_model every_tensor_is_taken weights_that_are_not_finite_serve_nothing",
    "faulty-partial": "after_an_update_it_is_the_trainers_model update_serves_the_new_weights weights_that_are_not_finite_serve_nothing",
}
"""What else a bug breaks that has one rule of its own: other rules go through the same place."""
BASIC = {
    "ReadsItsAnswers": "every answer is another",
    "ServesAnotherModel": "every log probability is another",
    "DrawsAnew": "no draw is repeated",
    "SharesNoise": "no draw is repeated",
    "IgnoresNoise": "all draws are one",
    "HangsInPoll": "whoever polls waits",
    "HangsInClose": "whoever closes waits",
    "CountsVersions": "versions are wrong after every update",
    "BlendsVersions": "weights are wrong after every update",
    "faulty-behind": "versions are wrong after every update",
    "faulty-torn": "it dies in its second update",
    "faulty-loses": "an answer is missing everywhere",
    "faulty-repeats": "an answer comes twice everywhere",
}
"""Bugs in what most rules go through: they are found by more than their own."""
