"""Refuses expressions that a computer algebra system could not finish, or would evaluate wrongly, before it receives them."""

from __future__ import annotations

import re

__all__ = ["LimitExceeded", "check_size", "foreign_signs", "glued_numbers", "no_formula"]

_DEPTH = 24
_DIGITS = 400
_BIG = 1000  # exponents, factorials, binomials, bounds of sums
_TERMS = 200


class LimitExceeded(BaseException):
    """The judged expression is beyond a guard or its time limit. A BaseException, so that no library in between swallows it."""


_RUN = re.compile(rf"[0-9]{{{_DIGITS},}}")
_EXPONENT = re.compile(r"\^ ?(?:\{ ?)?(?:\( ?)?-?([0-9]+)")
_E_NOTATION = re.compile(r"[0-9][eE][+-]?([0-9]+)")
_TOWER = re.compile(r"\^ ?(?:[0-9]+|\{[^{}]*\}|\([^()]*\)) ?\^|\^ ?[{(][^{}()]*[0-9)}] ?(?:\^|!)")
_FACTORIAL = re.compile(r"(?:(?<![0-9])([0-9]++)|([)}!])) ?!")
_BINOMIAL = re.compile(r"\\binom ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}")
_GAMMA = re.compile(r"\\(?:Gamma|zeta) ?\(? ?\{? ?([0-9]+)")
_POWER_OF_POWER = re.compile(r"[0-9)}] ?[)}] ?\^ ?[({] ?[^a-z]*\^")
_SUM = re.compile(r"\\(?:sum|prod)(?![A-Za-z])[^\\]{0,40}?\^ ?(?:\{([^{}]*)\}|([0-9]))")


def check_size(text: str) -> None:
    """Raise LimitExceeded, which names the limit, for an expression whose evaluation could explode."""
    for reason, broken in _LIMITS:
        if broken(text):
            raise LimitExceeded(reason)


def _too_deep(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += (sign in "{([") - (sign in "})]")
        if depth > _DEPTH:
            return True
    return False


def _big(pattern: re.Pattern[str], text: str) -> bool:
    return any(len(number) > 5 or int(number) > _BIG for match in pattern.finditer(text) for number in match.groups() if number)


def _big_factorial(text: str) -> bool:
    return any(match[2] or len(match[1]) > 5 or int(match[1]) > _BIG for match in _FACTORIAL.finditer(text))


def _big_sum(text: str) -> bool:
    bounds = [match[1] or match[2] or "" for match in _SUM.finditer(text)]
    return any("^" in bound or "!" in bound or _big(_ANY_NUMBER, bound) for bound in bounds)


_ANY_NUMBER = re.compile(r"([0-9]+)")
_LIMITS = (
    (f"nested deeper than {_DEPTH} brackets", _too_deep),
    (f"a number of {_DIGITS} digits or more", lambda text: bool(_RUN.search(text))),
    (f"an exponent above {_BIG}", lambda text: _big(_EXPONENT, text) or _big(_E_NOTATION, text)),
    ("a tower of powers", lambda text: bool(_TOWER.search(text) or _POWER_OF_POWER.search(text))),
    (f"a factorial above {_BIG}, or of an expression", _big_factorial),
    (f"a binomial or gamma function above {_BIG}", lambda text: _big(_BINOMIAL, text) or _big(_GAMMA, text)),
    (f"a sum or product of more than {_BIG} terms", _big_sum),
    (f"more than {_TERMS} operations", lambda text: sum(text.count(sign) for sign in "+-*/^&") > _TERMS),
)


# --- what algebra gets wrong or does not know ------------------------------------------------------------------------------

_ARGUMENTS = re.compile(
    r"\\(?:frac|binom) ?\{[^{}]*\} ?\{[^{}]*\}|\\(?!frac|binom)[A-Za-z]+ ?(?:\[[^\[\]]*\])? ?\{[^{}]*\}|[\^_] ?(?:\{[^{}]*\}|[0-9A-Za-z])"
)
_GLUED = re.compile(r"[0-9][{}\s]+\.?[0-9]")


def glued_numbers(text: str) -> bool:
    """Return whether numbers are adjacent with no sign between them; math-verify would add them up."""
    previous = None
    while text != previous:
        previous, text = text, _ARGUMENTS.sub("@", text)
    return bool(_GLUED.search(text))


_MARKS = frozenset(" +-*/^_=<>()[]{}|!?,.;:'\"&%$\\€£¥")
_NOT_IN_FORMULAS = re.compile(
    r"[^\x20-\x7e]|[?;:\"$@#`~]|\.\.|= ?=|(?<!\^)\\circ(?![A-Za-z])"
    r"|\\(?:to|rightarrow|mid|perp|parallel|exists|forall|square|ldots|vdots|ddots|colon|angle|triangle|lor|vee|land|wedge)(?![A-Za-z])"
    r"|\\(?:cap|cup|setminus) ?-?[0-9]|[0-9] ?\\(?:cap|cup|setminus)(?![A-Za-z])"
)
_BELOW = re.compile(r"_ ?\{[^{}]*\}")
_ROW_SIGN = re.compile(r"(?:^|[^\\])(?:\\\\)*&|\\\\")
_ESCAPES = frozenset("{}%$\\|")
_ONE_COMMAND = re.compile(r"\\([A-Za-z]+|.|$)", re.DOTALL)
_COMMANDS_TEXT = (
    "frac binom sqrt sum prod int iint oint lim infty to rightarrow partial nabla cdot times div ast pm mp bmod pmod mod "
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau upsilon "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell imath jmath sin cos tan cot "
    "sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth log ln lg exp gcd lcm max min det Re Im arg deg "
    "dim ker inf sup lfloor rfloor lceil rceil lvert rvert lVert rVert vert Vert mid langle rangle le ge ne in approx cup "
    "cap setminus emptyset subset subseteq forall exists lor vee land wedge begin end text mathbb mathcal mathbf boldsymbol "
    "overline bar vec hat overrightarrow widehat underline prime circ angle triangle perp parallel square ldots vdots ddots "
    "colon quad "
)
_COMMANDS = frozenset(_COMMANDS_TEXT.split())


def foreign_signs(text: str) -> bool:
    r"""Return whether the text has a control character, ``@``, ``\)`` or ``\not``: math-verify drops unknown parts and judges the rest."""
    if any(not (sign.isalnum() or sign in _MARKS) for sign in text):
        return True
    commands = (match[1] for match in _ONE_COMMAND.finditer(text))
    return any(command not in _COMMANDS and command not in _ESCAPES for command in commands)


_DROPPED = re.compile(r"[0-9)}] ?_|% ?[0-9A-Za-z(\\]|\.[0-9]*\.")  # algebra drops a subscript of a number and text after %
_OPEN_END = re.compile(r"(?:[-+*/^_=<>]|\\(?:cdot|times|div|pm|mp|bmod|le|ge|ne|in|approx)) ?(?=$|[)\]])|^[*/^]")


def no_formula(text: str) -> bool:
    """Return whether the text contains something that no formula has, though words, ratios and lists may, or an operator without
    operand."""
    text = _BELOW.sub("_x", text)  # the range of a limit or a sum
    if "\\begin" not in text and _ROW_SIGN.search(text):
        return True
    return bool(_NOT_IN_FORMULAS.search(text) or _OPEN_END.search(text) or _DROPPED.search(text))
