"""Stop strings against the plain definition: the first token after which the decoded response holds one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore_plugin_transformers.stopping import StopMatcher

TEXT = st.lists(st.sampled_from(["a", "b", " ", "</a>", "<", ">", "é", "ü", "\u20ac", "/a", "\n", "<eos>"]), max_size=25).map("".join)


def first_stop(stop, tokenizer, tokens):
    return next((end for end in range(1, len(tokens) + 1) if any(text in tokenizer.decode(tokens[:end]) for text in stop)), None)


def streamed(matcher, tokens):
    for end in range(1, len(tokens) + 1):
        if matcher.candidates(np.array(tokens[end - 1 : end]))[0] and matcher.found(tokens[:end]):
            return end
    return None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT, stop=st.sets(st.sampled_from(["</a>", "é", "a b", " ", "\n", "\u20aca", "b "]), min_size=1).map(tuple), data=st.data())
def test_found_exactly_where_the_decoded_response_first_holds_one(tokenizer, text, stop, data):
    tokens = tokenizer._inner.encode(text, add_special_tokens=False)
    cut = data.draw(st.integers(0, len(tokens)))
    tokens = tokens[cut:]
    matcher = StopMatcher(stop, tokenizer, 258)
    assert streamed(matcher, tokens) == first_stop(stop, tokenizer, tokens)


@pytest.mark.parametrize("stop", ["é", "\u20ac", "bé"])
def test_a_character_of_several_tokens_is_found_at_its_last(tokenizer, stop):
    tokens = tokenizer._inner.encode("ab" + stop.strip("b") + "c", add_special_tokens=False)
    assert streamed(StopMatcher((stop,), tokenizer, 258), tokens) == len(tokens) - 1


def test_tokens_that_print_nothing_do_not_hide_a_stop_string(tokenizer):
    letters = tokenizer._inner.encode("</a>", add_special_tokens=False)
    silent = min(tokenizer.stop_ids)
    tokens = [*letters[:1], *[silent] * 50, *letters[1:]]
    assert streamed(StopMatcher(("</a>",), tokenizer, 258), tokens) == len(tokens)


def test_only_tokens_that_can_close_a_stop_string_are_decoded(tokenizer, monkeypatch):
    matcher = StopMatcher(("</a>",), tokenizer, 258)
    tokens = tokenizer._inner.encode("answer without an end", add_special_tokens=False)
    monkeypatch.setattr(matcher, "found", lambda _: pytest.fail("decoded for nothing"))
    assert streamed(matcher, tokens) is None


class FirstSpaceEater:
    """Decodes like a SentencePiece tokenizer: the space in front of the first piece is not printed."""

    stop_ids = frozenset()
    pieces = ("a", "\u2581b", "\u2581", "c")

    def decode(self, token_ids):
        return "".join(self.pieces[token] for token in token_ids).replace("\u2581", " ").removeprefix(" ")


@pytest.mark.parametrize(("tokens", "stop"), [([0, 1, 2, 3], "b "), ([3, 0, 2, 2], "a "), ([0, 0, 1], "a b"), ([2, 0, 1], "a ")])
def test_a_space_that_a_piece_alone_does_not_print_is_found(tokens, stop):
    tokenizer = FirstSpaceEater()
    assert streamed(StopMatcher((stop,), tokenizer, 4), tokens) == first_stop((stop,), tokenizer, tokens)
    assert first_stop((stop,), tokenizer, tokens) is not None
