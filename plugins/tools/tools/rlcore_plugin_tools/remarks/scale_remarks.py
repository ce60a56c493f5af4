"""Remarks on numbers: those that look mistyped, the full mark of each reward, the temperature of evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.api.settings import RuleContext, get_path

__all__ = ["scale_remarks"]

_USUAL = {
    "training.learning_rate": (1e-9, 1e-2, "AdamW trains with 1e-6 to 1e-3"),
    "training.weight_decay": (0.0, 1.0, "0 to 0.1 is usual"),
    "training.max_grad_norm": (1e-4, 1e4, "about 1 is usual"),
    "algorithm.kl_coeff": (0.0, 1.0, "0 to 0.1 is usual"),
    "algorithm.entropy_coeff": (-1.0, 1.0, "0 to 0.01 is usual"),
    "sampling.temperature": (0.05, 3.0, "0.6 to 1.2 is usual"),
    "eval.eval_temperature": (0.0, 3.0, "0 to 1 is usual"),
}
"""Setting -> the lowest and the highest value that is not remarked upon, and the usual values. 0 is a choice and never remarked upon."""


def scale_remarks(facts: RuleContext) -> Iterator[str]:
    """Yield a sentence for each number that looks mistyped, one about the rewards, and one about the temperature of evaluations."""
    for path, (low, high, usual) in _USUAL.items():
        if path == "training.learning_rate" and facts.config.training.chooses_optimizer:
            continue
        value = get_path(facts.config, path)
        if isinstance(value, int | float) and value and not low <= value <= high:
            yield f"{facts.cite(path)} looks mistyped: {usual}{_exponent(path, value)}"
    marks = list(_marks(facts))
    if marks:
        yield _rewards(marks)
    if facts.config.eval.eval_dataset and facts.all_rewards_known and not any(spec.gives_accuracy for _, spec in facts.rewards()):
        yield (
            "no reward declares that it gives an accuracy; a function that returns Score(value=…, accuracy=…) of rlcore.api declares it "
            "by its return type: def reward(item) -> Score"
        )
    if facts.config.eval.eval_dataset:
        greedy = "" if facts.config.eval.eval_temperature else ", so it is greedy"
        training = f"; training samples with {facts.cite('sampling.temperature')}" if facts.config.data.sources else ""
        yield f"evaluation: {facts.cite('eval.eval_temperature')}{greedy}{training}"


def _exponent(path: str, value: float) -> str:
    """Return a question for a number such as 2e4, whose exponent may lack its minus sign."""
    mantissa, _, exponent = f"{value:e}".partition("e+")
    low, high, _ = _USUAL[path]
    meant = f"{float(mantissa):g}e-{int(exponent)}" if exponent else ""
    return f"; did you mean {meant}?" if meant and value >= 10 and low <= float(meant) <= high else ""


def _marks(facts: RuleContext) -> Iterator[tuple[str, float, float]]:
    """Yield name, full mark and weight of each reward. Yield nothing if a mark is not known: one is not installed, or none has marks."""
    if not facts.all_rewards_known or not any(spec.gives_accuracy for _, spec in facts.rewards()):
        return
    for (_, spec), entry in zip(facts.rewards(), facts.config.rewards, strict=True):
        mark = entry.options.get(spec.full_value_option, 1.0) if spec.full_value_option else 1.0
        yield entry.name, float(mark), entry.weight


def _rewards(marks: list[tuple[str, float, float]]) -> str:
    if len(marks) == 1 and marks[0][2] == 1.0:
        return f"reward {marks[0][0]}: a right answer is worth {marks[0][1]:g}"
    most = sum(max(mark * weight, 0.0) for _, mark, weight in marks)
    parts = [f"{name} {mark:g} x weight {weight:g}{_share(mark * weight, most)}" for name, mark, weight in marks]
    return f"a right answer is worth at most {most:g}: {', '.join(parts)}"


def _share(worth: float, most: float) -> str:
    return f" = {worth / most:.0%}" if worth > 0 and most > 0 else " (reduces it)" if worth < 0 else ""
