"""Which mutations `make mutation` makes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import parso.python.tree
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

from benchmarks.silent_places import Place

# Of cosmic-ray's operators: replacements within a kind. Across kinds (a shift of a float, `is` between numbers) Python refuses the
# mutant or cannot tell it apart, so it would prove nothing about the tests.
_ARITHMETIC, _BITS = "(Add|Sub|Mul|Div|FloorDiv|Mod|Pow)", "(BitOr|BitAnd|BitXor)"
_ORDER, _IDENTITY = "(Eq|NotEq|Lt|LtE|Gt|GtE)", "(Is|IsNot)"
_CHOSEN = re.compile(
    "core/("
    f"ReplaceBinaryOperator_{_ARITHMETIC}_{_ARITHMETIC}|ReplaceBinaryOperator_{_BITS}_{_BITS}|"
    f"ReplaceComparisonOperator_{_ORDER}_{_ORDER}|ReplaceComparisonOperator_{_IDENTITY}_{_IDENTITY}|"
    "ReplaceUnaryOperator_Delete_(USub|Invert|Not)|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|"
    "ReplaceBreakWithContinue|ReplaceContinueWithBreak|ExceptionReplacer|NumberReplacer|RemoveDecorator|ZeroIterationForLoop)"
)

_PAIRS = (
    ("minimum", "maximum"), ("min", "max"), ("sum", "mean"), ("row_sum", "row_mean"), ("any", "all"), ("tril", "triu"), ("ones", "zeros"),
)  # fmt: skip
_ONE_WAY = (
    ("detach", "clone"), ("square", "abs"), ("abs", "square"), ("exp", "expm1"), ("sqrt", "abs"), ("isfinite", "isnan"), ("floor", "ceil"),
    ("sigmoid", "tanh"),
)  # fmt: skip
NAMES = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}, **dict(_ONE_WAY)}


class SwapAttribute(Operator):
    """`x.minimum(y)` becomes `x.maximum(y)`, and so on through NAMES: array code says with names what other code says with operators."""

    def mutation_positions(self, node: object) -> Iterable[Place]:
        if isinstance(node, parso.python.tree.Name) and node.value in NAMES and node.get_previous_leaf() == ".":
            yield node.start_pos, node.end_pos

    def mutate(self, node: parso.python.tree.Name, index: int) -> parso.python.tree.Name:
        node.value = NAMES[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x.minimum(y)", "x.maximum(y)"),)


def operators() -> dict[str, Operator]:
    """Name -> operator."""
    chosen = {name: get_operator(name)() for name in operator_names() if _CHOSEN.fullmatch(name)}
    return {**chosen, "rlcore/SwapAttribute": SwapAttribute()}
