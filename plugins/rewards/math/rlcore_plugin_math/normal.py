r"""One spelling for equivalent ones: Unicode forms, LaTeX spacing, wrappers. It never changes the meaning of a number or word.

>>> normal("−½")
'-\\frac{1}{2}'
"""

from __future__ import annotations

import re
import unicodedata

from rlcore_plugin_math.chinese import western

__all__ = ["compact", "fold", "foreign_digits", "normal", "plain_text"]

_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_VULGAR = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5), "⅘": (4, 5)}
_VULGAR |= {"⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9), "⅒": (1, 10)}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho sigmaf sigma tau upsilon phi chi psi omega"
_SIGNS = {chr(0x3B1 + place): f"\\{name} " for place, name in enumerate(_GREEK.split()) if name not in ("o", "sigmaf")}
_SIGNS |= {
    "Γ": "\\Gamma ",
    "Δ": "\\Delta ",
    "Θ": "\\Theta ",
    "Λ": "\\Lambda ",
    "Π": "\\Pi ",
    "Σ": "\\Sigma ",
    "Φ": "\\Phi ",
    "Ω": "\\Omega ",
}
_SIGNS |= {"−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "÷": "/", "∕": "/", "⁄": "/"}
_SIGNS |= {
    "≤": "\\le ",
    "≥": "\\ge ",
    "⩽": "\\le ",
    "⩾": "\\ge ",
    "≠": "\\ne ",
    "≈": "\\approx ",
    "∞": "\\infty ",
    "±": "\\pm ",
    "°": "^\\circ ",
}
_SIGNS |= {"∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ", "→": "\\to ", "√": "\\sqrt ", "∛": "\\sqrt[3] ", "∠": "\\angle "}
_SIGNS |= {"ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "…": "\\ldots "}
_SIGNS |= {"∶": ":", "≡": "\\equiv ", "∖": "\\setminus ", "∉": "\\notin "}
_SIGNS |= dict.fromkeys("\u27e8\u2329\u3008", "\\langle ") | dict.fromkeys("\u27e9\u232a\u3009", "\\rangle ")
_INVISIBLE = dict.fromkeys([0x200B, 0x200C, 0x200D, 0x2060, 0x2061, 0x2062, 0xFEFF, 0x00AD])
_SCRIPTS = re.compile(f"[{''.join(map(re.escape, _SUPER))}]+|[{''.join(map(re.escape, _SUB))}]+")
_ROOT = re.compile(r"\\sqrt(\[3\])? (\d+|[A-Za-z])")

_SPELLINGS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (needed, re.compile(pattern), replacement)
    for needed, pattern, replacement in (
        ("\\", r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])\.?", ""),
        ("\\!", r"(?<=[0-9]),\\!\s*(?=[0-9]{3}(?![0-9]))", ","),  # set between groups of thousands
        ("\\!", r"(?<!\\)((?:\\\\)*)\\!", r"\1"),  # not the second half of a row's end; a negative space separates nothing
        ("\\", r"(?<!\\)((?:\\\\)*)\\[,;: ]", r"\1 "),
        ("color", r"\\(?:color|textcolor)\s*\{[a-zA-Z]{1,20}\}", ""),
        ("\\", r"\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge|scriptstyle|bf|rm|it|sf|tt|cal)(?![A-Za-z])(?!\s*\{)", ""),
        ("\\", r"\\(?:mathrm|mathbf|boldsymbol|bm|mathit|mathsf)\s*\{\s*([a-fi-kn-rt-z])\s*\}", r" \1 "),  # no unit has these letters
        (":", r"\\math(?:rel|bin|ord|punct) ?\{ ?: ?\}|\{ ?: ?\}", ":"),
        ("\\colon", r"(?<=[0-9]) ?\\colon ?(?=[0-9])", ":"),
        ("{=}", r"\{=\}", "="),
        ("<", r"^<((?:[^<>=,;]+[,;])+[^<>=,;]+)>$", r"\\langle \1\\rangle "),
        (".", r"(\.[0-9]*) ?\\(?:overline|bar) ?([0-9])", r"\1\\overline{\2}"),
        (".", r"(\.[0-9]*) ?\\bar ?\{([0-9]+)\}", r"\1\\overline{\2}"),
        (
            ".",
            r"(\.[0-9]*) ?\\dot ?(?:\{([0-9])\}|([0-9])) ?([0-9]*) ?\\dot ?(?:\{([0-9])\}|([0-9]))(?![0-9])",
            r"\1\\overline{\2\3\4\5\6}",
        ),
        (".", r"(\.[0-9]*) ?\\dot ?(?:\{([0-9]+)\}|([0-9]))(?! ?(?:[0-9]|\\dot))", r"\1\\overline{\2\3}"),
        (".(", r"^([+-]? ?[0-9]*\.)\(([0-9]+)\)$", r"\1\\overline{\2}"),
        ("(", r"^([+-]? ?0\.[0-9]+)\(([0-9]+)\)$", r"\1\\overline{\2}"),
        ("binom", r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        ("\\over", r"\{([^{}]{1,80})\\over(?![A-Za-z])([^{}]{1,80})\}", r"\\frac{\1}{\2}"),
        ("\\choose", r"\{([^{}]{1,80})\\choose(?![A-Za-z])([^{}]{1,80})\}", r"\\binom{\1}{\2}"),
        ("\\mathbb", r"\\mathbb\s*([A-Z])(?![A-Za-z])", r"\\mathbb{\1}"),
        ("**", r"\*\* ?(?:\(([^()]{1,80})\)|(-?[0-9]+(?:\.[0-9]+)?|[A-Za-z](?![A-Za-z])))", r"^{\1\2}"),
        ("nf", r"(?:(?<=[(\[,<>+-])|(?<=[(\[,<>+-] )|^)(?:\\text\s*\{\s*)?[Ii]nf(?:inity)?(?:\s*\})?(?= ?(?:[)\],<>]|$))", r"\\infty "),
        ("\\log", r"\\log\s*_\s*(?:e(?![A-Za-z])|\{\s*e\s*\})", r"\\ln "),
        ("\\text", r"\\text\s*\{\s*([0-9A-Za-z]{1,40})\s*\}\s*_", r"\1_"),
        ("~", r"~", " "),
        ("\\", r"\\(?:quad|qquad|thinspace|hspace\{[^{}]*\})(?![A-Za-z])", " "),
        ("frac", r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (
            "\\",
            r"\\(?:mathrm|textbf|textit|textrm|mbox|mathbf|mathit|bf|rm|operatorname|mathsf|textsf|textnormal|texttt|emph)\s*\{",
            r"\\text{",
        ),
        ("\\le", r"\\(?:leq|le|leqslant)(?![A-Za-z])", r"\\le "),
        ("<=", r"<=", r"\\le "),
        ("\\ge", r"\\(?:geq|ge|geqslant)(?![A-Za-z])", r"\\ge "),
        (">=", r">=", r"\\ge "),
        ("\\lt", r"\\lt(?![A-Za-z])", "<"),
        ("\\gt", r"\\gt(?![A-Za-z])", ">"),
        ("\\text", r"\\text ?\{ ?([,;()]) ?\}", r"\1"),
        ("\\smallsetminus", r"\\smallsetminus(?![A-Za-z])", r"\\setminus "),
        ("\\not", r"\\not ?=", r"\\ne "),
        ("\\not", r"\\not ?\\in(?![A-Za-z])", r"\\notin "),
        ("\\neq", r"\\neq(?![A-Za-z])", r"\\ne "),
        ("!=", r"!=", r"\\ne "),
        ("\\", r"\\(?:lbrace|\{)", r"\\{"),
        ("\\", r"\\(?:rbrace|\})", r"\\}"),
        ("\\", r"\^\s*\{\s*\\(?:circ|degree)\s*\}|\^\s*\\circ(?![A-Za-z])|\\degree(?![A-Za-z])", r"^\\circ "),
        ("{,}", r"\{,\}", ","),
        ("+", r"^([A-Za-z] ?= ?)?\+ ?/? ?- ?(?=[0-9\\])", r"\1\\pm "),
        ("$", r"(?<=[^$])\$ ?(,? ?(?:and|or)|[,;]) ?\$(?=[^$])", r" \1 "),
        ("\\", r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset "),
        ("\\sqrt", r"\\sqrt\s*(\[[^\[\]]{1,20}\])?\s*([0-9])(?!\d)", r"\\sqrt\1{\2}"),
        ("\\sqrt", r"\\sqrt\s*(\[[^\[\]]{1,20}\])\s*([A-Za-z])", r"\\sqrt\1{\2}"),
        ("\\frac", r"\\frac\s*(\d)\s*(?=\{)", r"\\frac{\1}"),
        ("\\frac", r"\\frac\s*(\{(?:[^{}]|\{[^{}]*\}){1,80}\})\s*(\d)", r"\\frac\1{\2}"),
        ("\\%", r"\\%", "%"),
        ("dots", r"\\(?:dots|cdots)(?![A-Za-z])", r"\\ldots"),
    )
)
"""(text that every match contains, pattern, replacement)"""
_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)|\\frac\s*(\d)\s*\{(\d+)\}|\\frac\s*\{(\d+)\}\s*(\d)")


def fold(text: str) -> str:
    """Return the text with runs of white space as one blank, and none at the ends."""
    return " ".join(text.split())


def foreign_digits(text: str) -> bool:
    """Return whether a digit of another script remains (``٥``): such an answer is compared only as text."""
    return not text.isascii() and any(sign.isdigit() and not sign.isascii() for sign in text)


def normal(text: str) -> str:
    """Return the canonical spelling. Idempotent."""
    previous = None
    while text != previous:
        previous = text
        text = _unwrapped(_plain_functions(_spelled(western(_ascii(text)))))
    return text


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    text = _MARKED_DIGITS.sub(lambda run: _overlined(run.group()), text.translate(_INVISIBLE))
    text = _SCRIPTS.sub(lambda run: _script(run.group()), text)
    text = "".join(_vulgar(sign) or _SIGNS.get(sign) or sign for sign in text)
    text = _ROOT.sub(r"\\sqrt\1{\2}", text)
    return unicodedata.normalize("NFKC", text)


_DOT_ABOVE, _LINE_ABOVE = "\u0307", "\u0305"
_MARKED_DIGITS = re.compile(f"[0-9][{_DOT_ABOVE}{_LINE_ABOVE}](?:[0-9]*[0-9][{_DOT_ABOVE}{_LINE_ABOVE}])?|(?:[0-9]{_LINE_ABOVE})+")


def _overlined(run: str) -> str:
    """Return digits with a dot or a line above, which repeat, as LaTeX spells them."""
    return "\\overline{" + run.replace(_DOT_ABOVE, "").replace(_LINE_ABOVE, "") + "}"


def _script(run: str) -> str:
    if run[0] in _SUPER:
        return "^{" + "".join(_SUPER[sign] for sign in run) + "}"
    return "_{" + "".join(_SUB[sign] for sign in run) + "}"


def _vulgar(sign: str) -> str:
    return _fraction(*_VULGAR[sign]) if sign in _VULGAR else ""


def _fraction(over: object, under: object) -> str:
    return f"\\frac{{{over}}}{{{under}}}"


def _spelled(text: str) -> str:
    for needed, pattern, replacement in _SPELLINGS:
        if needed in text:
            text = pattern.sub(replacement, text)
    if "\\frac" in text:
        text = _FRACTION.sub(lambda m: _fraction(*(group for group in m.groups() if group)), text)
    return fold(text)


_COMMAND = re.compile(r"\\[A-Za-z]+")
_RUN = re.compile(r"[A-Za-z]{2,}")
_PLAIN_NAMES = frozenset(
    ["pi", "sqrt", "exp", "ln", "log", *(f"{arc}{name}" for arc in ("", "arc") for name in ("sin", "cos", "tan", "cot"))]
)
_PLAIN_ANY = re.compile(r"(?<![A-Za-z\\])(?:pi|sqrt|exp|ln|log|(?:arc)?(?:sin|cos|tan|cot))(?![A-Za-z])")
_PLAIN_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_PLAIN_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt ?\(([^()]{1,80})\)")
_PLAIN_FUNCTION = re.compile(r"(?<![A-Za-z\\])((?:arc)?(?:sin|cos|tan|cot)|exp|ln|log)(?= ?\()")


def _plain_functions(text: str) -> str:
    """Return ``pi``, ``sqrt(2)`` and ``sin(x)``, in program spelling, as LaTeX; text with other words stays unchanged."""
    if not _PLAIN_ANY.search(text):
        return text
    runs = set(_RUN.findall(_COMMAND.sub(" ", text)))
    if not runs <= _PLAIN_NAMES or text.replace(" ", "").isalpha():
        return text
    text = _PLAIN_FUNCTION.sub(r"\\\1", _PLAIN_PI.sub(r"\\pi ", text))
    return fold(_PLAIN_ROOT.sub(r"\\sqrt{\1}", text))


_BOX = re.compile(r"([^={}]{0,40}= ?|)\\(?:boxed|fbox) ?\{")
_STYLE = re.compile(r"(?:\\(?:boldsymbol|bm|underline|fbox|mathbf))? ?\{")
_STYLED_NUMBER = re.compile(r"\\text ?\{ ?([-+0-9][-+0-9.,:/ ]*) ?\}")
_STYLED_COUNT = re.compile(r"\\text ?\{ ?([-+]?[0-9][0-9.,/]*) ([A-Za-z][A-Za-z ]{0,40})\}")
_CHOICE = re.compile(r"([A-Za-z])\)")
_DOLLARS_AROUND = re.compile(r"\$([^$ ]|[^$ ][^$]{0,200}[^$ ])\$ ([A-Za-z][A-Za-z. ]{0,40}|\\text ?\{[^{}$]*\}|%)")
_DOLLAR_BEHIND = re.compile(r"([-+]?[0-9][0-9.,]*) ?\$")
_LONE_DOLLAR = re.compile(r"([+-]? ?)\$([^$\\]*)")


def _unwrapped(text: str) -> str:
    """Return the text without wrappers: dollars, math brackets, ``\\boxed{}``, a full stop at the end."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(opening) : len(text) - len(closing)]
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing) and "$" not in inner:
            return inner.strip() if not inner.endswith("\\") else text
    if (box := _BOX.match(text)) and _closes_at_end(text, box.end() - 1):
        return box[1] + text[box.end() : -1].strip()
    if (style := _STYLE.match(text)) and style.end() > 1 and _closes_at_end(text, style.end() - 1):
        return text[style.end() : -1].strip()
    if number := _STYLED_NUMBER.fullmatch(text):
        return number[1].strip()
    if count := _STYLED_COUNT.fullmatch(text):
        return f"{count[1]} \\text{{{count[2]}}}"
    if letter := _CHOICE.fullmatch(text):
        return letter[1]
    if dollar := _LONE_DOLLAR.fullmatch(text):
        return f"{dollar[1].strip()}\\${dollar[2].strip()}"
    if noun := _DOLLARS_AROUND.fullmatch(text):
        return f"{noun[1]} {noun[2]}"
    if dollar := _DOLLAR_BEHIND.fullmatch(text):
        return f"{dollar[1]}\\$"
    if text.startswith("=") and not (rest := text[1:].lstrip()).startswith("="):
        return rest
    if len(text) > 1 and text.endswith((".", ",", ";")) and text[-2:] not in ("..", "\\,", "\\;"):
        return text[:-1].rstrip()
    return text


def _closes_at_end(text: str, place: int) -> bool:
    depth = 0
    for at in range(place, len(text)):
        escaped = at > 0 and text[at - 1] == "\\"
        depth += 0 if escaped else (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at == len(text) - 1
    return False


_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_GAPS = re.compile(r"(?<![A-Za-z0-9.]) | (?![A-Za-z0-9.])")


def compact(text: str) -> str:
    """Return the text without blanks that separate nothing, so that ``( 3, x )`` and ``(3,x)`` are equal; blanks between two words or
    numbers stay."""
    return _GAPS.sub("", text)


def plain_text(text: str) -> str:
    """Return text for comparing words: no ``\\text{}``, no case, no quotation marks, one blank between words."""
    previous = None
    while text != previous:
        previous, text = text, _TEXT.sub(r" \1 ", text)
    text = fold(text.replace("\\", " ").replace('"', "")).casefold().strip()
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text
