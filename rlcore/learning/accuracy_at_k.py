"""avg@k, pass@k and maj@k of the completions of a prompt, and the 95 % interval of their means over prompts.

All are unbiased: the expected value for k completions drawn without replacement from the n existing ones. Nothing is sampled here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Estimate", "majority_at_k", "mean_interval", "pass_at_k", "usual_ks"]

_Z95 = 1.959963984540054
"""The 97.5 % point of the standard normal distribution."""


def pass_at_k(n: int, correct: float, k: int) -> float:
    """Return the probability that k of n completions, ``correct`` of which are right, contain a right one: 1 - C(n - correct, k) / C(n, k).

    If ``correct`` is not a whole number (accuracies between 0 and 1), the same formula applies, as a product. Source: Evaluating Large
    Language Models Trained on Code (arXiv 2107.03374), equation 1. Raise ValueError unless 1 <= k <= n and 0 <= correct <= n.
    """
    _check(n, k)
    if not 0 <= correct <= n:
        raise ValueError(f"{correct} of {n} completions cannot be right")
    missed = 1.0
    for drawn in range(k):
        missed *= max(n - correct - drawn, 0.0) / (n - drawn)
    return 1.0 - missed


def majority_at_k(answers: Sequence[str | None], accuracies: Sequence[float], k: int) -> float:
    """Return the expected accuracy of the answer that most of k completions give. If several answers tie, their mean counts.

    Equal texts count as one answer, with the mean of their accuracies. The result is 0 if no completion votes. It is exact, by counting
    over all C(n, k) choices at once. Source of the vote: Self-Consistency (arXiv 2203.11171), section 2. Raise ValueError unless 1 <= k <=
    n.

    :param answers: one for each of n completions, None for a completion without an answer, which does not vote.
    :param accuracies: float[n], 0 to 1.
    """
    n = len(answers)
    _check(n, k)
    if len(accuracies) != n:
        raise ValueError(f"{n} answers and {len(accuracies)} accuracies; each answer must have one accuracy")
    of_answer: dict[str, list[float]] = {}
    for answer, accuracy in zip(answers, accuracies, strict=True):
        if answer is not None:
            of_answer.setdefault(answer, []).append(accuracy)
    silent = n - sum(map(len, of_answer.values()))
    credit = 0.0
    for answer, known in of_answer.items():
        if (mean := sum(known) / len(known)) > 0:
            others = [len(votes) for other, votes in of_answer.items() if other != answer]
            credit += mean * _share_won(len(known), others, silent, k)
    return credit / math.comb(n, k)


def _share_won(votes: int, others: Sequence[int], silent: int, k: int) -> float:
    """Return the sum of 1 / (winners) over all choices of k that the answer with this number of ``votes`` wins."""
    return sum(
        math.comb(votes, most) * ways / winners
        for most in range(1, min(votes, k) + 1)
        for winners, ways in _ways(others, silent, k - most, most).items()
    )


def _ways(others: Sequence[int], silent: int, rest: int, most: int) -> dict[int, int]:
    """Return number of winners, the answer itself included -> number of ways.

    A way is a choice of ``rest`` further completions in which no answer has more than ``most`` votes.
    """
    ways = {(drawn, 1): math.comb(silent, drawn) for drawn in range(min(silent, rest) + 1)}
    for size in others:
        longer: dict[tuple[int, int], int] = {}
        for (drawn, winners), count in ways.items():
            for more in range(min(size, most, rest - drawn) + 1):
                key = drawn + more, winners + (more == most)
                longer[key] = longer.get(key, 0) + count * math.comb(size, more)
        ways = longer
    found: dict[int, int] = {}
    for (drawn, winners), count in ways.items():
        if drawn == rest:
            found[winners] = found.get(winners, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over prompts, and its 95 % interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], completions: int = 1) -> Estimate:
    """Return the mean of a figure in [0, 1] over prompts, and its 95 % interval for other prompts of the same kind.

    The interval is Wilson's, as for a share. Its sample size is the one at which a share would vary as these values do, between the number
    of prompts and that of completions. For one right or wrong completion per prompt it is exactly Wilson's. It never leaves [0, 1], and it
    does not vanish if all values are equal. Sources: Wilson (1927); the prompt as the unit of sampling: Adding Error Bars to Evals (arXiv
    2411.00640), section 2. Raise ValueError without values, or for values outside [0, 1].

    :param values: one per prompt.
    :param completions: the number of completions of which each value is the mean.
    """
    if not values or min(values) < 0 or max(values) > 1:
        raise ValueError("an interval needs at least one figure, each from 0 to 1")
    prompts = len(values)
    mean = math.fsum(values) / prompts
    variance = math.fsum((value - mean) ** 2 for value in values) / prompts
    as_share = mean * (1 - mean)
    size = min(max(as_share / variance, 1.0), completions) * prompts if variance > 0 else (completions if as_share > 0 else 1) * prompts
    shrink = 1 + _Z95**2 / size
    middle = (mean + _Z95**2 / (2 * size)) / shrink
    half = _Z95 / shrink * math.sqrt(as_share / size + _Z95**2 / (4 * size**2))
    return Estimate(mean, min(mean, max(0.0, middle - half)), max(mean, min(1.0, middle + half)))


def usual_ks(n: int) -> tuple[int, ...]:
    """Return the values of k above 1 that are reported for n completions: powers of two, and n itself."""
    powers = [1 << place for place in range(1, n.bit_length()) if 1 << place < n]
    return (*powers, n) if n > 1 else ()


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}, it must be 1 to {n}, the number of completions")
