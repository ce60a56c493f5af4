"""Finds the letter of a multiple choice in prose: one that is used as an answer, not the pronoun I, the article A, a unit or a name.

>>> answered("I think it is C.", "ABCDEFGHIJ")
'C'
>>> answered("A quick check shows nothing.", "ABCD"), answered("C or D", "ABCD", statement=True)
(None, '')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["answered", "bracketed", "last_line", "stated", "taken_back"]

_LONGEST = 400
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s{0,3}\{|[*_`$\\{}]")
_EMPHASISED = re.compile(r"\s{0,9}(?:\*\*|[*_`$]|\\(?:text|textbf|mathrm|mathbf)\{)\s?\(?[A-Z][.):]?\s?[*_`$}]")
_ANSWER = (
    r"(?:answer|choice|option|resposta|respuesta|r[ée]ponse|risposta|antwort|ответ)"
    r"(?:\s(?:correcta|correta|corretta|correcte|choice|option))?(?:,[^,.\n]{1,20},)?"
)
_IS = r"(?::|(?:is|é|es|est|è|ist)\b:?|(?:must|should|would|has to|will|can only) be\b)"
_NO_IF = r"(?<!if )(?<!if the )"
_STATEMENT = re.compile(
    rf"(?<![A-Za-z]){_NO_IF}{_ANSWER}[*_]{{0,3}}\s{{0,3}}{_IS}|答案\s{{0,3}}[是为:：]|故选|应选|选择|选(?=[A-Z])", re.IGNORECASE
)
_BEHIND = re.compile(r"[\s:：]*+(?:[*_`]{1,3}(?=\s))?\s*+")
_ADVERBS = (
    r"[, ]{0,2}(?:(?:clearly|definitely|certainly|probably|likely|most likely|obviously|therefore|thus|hence|then|indeed|simply|just"
    r"|actually|surely|again|still|the|letter|answer|option|choice|opción|opção|la|le|a letra|so|i think|i believe)[, ]\s{0,3}){0,4}"
)
_CUE = (
    rf"(?:\b{_NO_IF}(?:it|that|this|which|answer|choice|option|letter|one)"
    r"(?:['’]s|\s(?:is|was|must be|should be|would be|has to be|can only be))"
    r"|\b(?:choose|choosing|chose|pick|picking|select|selecting|say|go with|going with|went with|settle on|gives?|yields?|leaves?"
    r"|means?|points? to|leads? to|answer(?: with)?|option|choice|so|therefore|thus|hence)|→|⇒|=>|->)[:,]?\s{1,3}"
)
_RIGHT_WORDS = r"\s(?:is|was|must be)\s(?:\w{1,20}\s){0,2}?(?:correct|right|best|true|answer|only|one|option|choice)\b"
_RIGHT = re.compile(_RIGHT_WORDS, re.IGNORECASE)
_CLAUSE_ENDS = rf"(?=\s{{0,3}}(?:$|[.,;:!?\n()—–。，]|(?:because|since)\b)|{_RIGHT_WORDS})"
_WRONG = r"(?:not|wrong|incorrect|false|out|impossible|eliminated|excluded)\b"
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bnor|\bneither|\bnever|\bexcept|\ball but|\bthan|\binstead of|\bwithout|\beliminated?|\bexcluded?"
    r"|\brul(?:e|ed|ing) out|\brejected?|\bpart|\bcase|\bstep|\bfigure|\bequation)\s{0,3}(?:be |option |choice |letter )?\(?$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    rf"[).]{{0,2}},?\s{{0,3}}(?:(?:is|was|seems|looks|must be|would be)\s(?:\w{{1,20}}\s){{0,2}}?{_WRONG}"
    r"|(?:isn|wasn|can|won|doesn|couldn)['’]t\b|(?:cannot|can not|does not|fails|wrong|incorrect|rejected|discarded|no)\b|\?)"
    r"|[).\]]{0,2}\s{0,3}(?:[([{]|[:—–-]{1,2}\s)\s?(?:is\s)?(?:wrong|incorrect|false|untrue|rejected|discarded|eliminated|excluded"
    r"|ruled out|crossed out|impossible|nope|no|not)\s{0,3}(?=$|[.,;:!?)\]}\n])",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"(?:\b(?:not|never|nobody|no one|none|cannot|den(?:y|ies|ied)|refuses?|hesitate|hardly|disagree|rejects?|unlikely|disputes?"
    r"|(?<!no )(?<!a )(?<!any )(?<!not )(?<!n['’]t )doubts?"
    r"|(?:false|untrue|wrong|incorrect|mistaken|mistake|lie)(?=\s(?:that|to)\b))|n['’]t)"
    r"(?:\s{1,3}(?:that|the|to|says?|saying|thinks?|believes?|claims?|would|will|could|can|should|is|was|be|it|it['’]s|correct|right|true"
    r"|case|final|best|my|i|we|you|sure|certain|convinced|agree|accept|possible|answer|choice|option|letter|picks?|chooses?|selects?|go"
    r"|with)){0,9}:?\s{0,3}\(?$",
    re.IGNORECASE,
)
"""Words that reject a statement: ``I doubt that the answer is``, ``nobody would pick``."""
_OR_ELSE = re.compile(r"\b(?:or|or else|otherwise|alternatively|or maybe|or perhaps)[,:]?\s{1,3}$", re.IGNORECASE)
_NAMES_I = re.compile(r"(?:answer|choice|option|letter|it is|it['’]s|choos|chose|pick|select|go(?:ing)? with)", re.IGNORECASE)
_TAKES_BACK = (
    r"(?:wait|actually|sorry|correction|scratch that|strike that|on second thoughts?|edit|oops|rather|instead|i mean|just kidding|make that"
    r"|alternatively|otherwise|maybe|perhaps|or else|no[,.:;!])"
)
_REASON = re.compile(r",?\s{0,3}(?:because|since)\b|\s[—–-]{1,2}\s|\s?[;—–]|\s[(\[]|,\s|项")
_EXPLAINS = re.compile(r"\b(?:because|since|as|not)\b", re.IGNORECASE)
_ABBREVIATION = re.compile(r"\.\s?[A-Z]\.")
_AND = r"\s{0,3}(?:,|/|&|\+|、|和|或|\b(?:or|and|nor|y|o|e|et|ou|und|oder)\b)\s{0,3}(?:(?:or|and)\s)?(?:option |choice )?"
_NO_LETTER_NEXT = r"(?!['’]?[A-Za-zÀ-ÿ0-9_]|[+#-])"
_OPTION = re.compile(r"\W{0,9}([A-Za-z])[).:](?=\W)")
_LONE = re.compile(r"\W{0,9}([A-Za-z])\W{0,9}$")
_OPERATOR_NEXT = re.compile(r"\s?[=<>^*]")


@dataclass(frozen=True, slots=True)
class _Patterns:
    leading: re.Pattern[str]
    cued: re.Pattern[str]
    joined: re.Pattern[str]
    listed: re.Pattern[str]
    beside: re.Pattern[str]
    taken_back: re.Pattern[str]
    line_back: re.Pattern[str]
    denied: re.Pattern[str]
    bracketed: re.Pattern[str]


@cache
def _patterns(letters: str) -> _Patterns:
    """Return the patterns that depend on the available letters."""
    either, one = f"[{letters}{letters.lower()}]", rf"\(?[{letters}]\)?"
    return _Patterns(
        leading=re.compile(rf"(?i:{_ADVERBS})(?:\(\s?({either})\s?\)|[\[\"“'‘<]?({either}){_NO_LETTER_NEXT})"),
        cued=re.compile(rf"(?i:{_CUE}{_ADVERBS})(?:\(({either})\)|([{letters}]){_NO_LETTER_NEXT}(?i:{_CLAUSE_ENDS}))"),
        joined=re.compile(rf"\)?(?i:{_AND})(?:\({either}\)|{either}(?:\)|{_NO_LETTER_NEXT}(?!\s\w)))"),
        listed=re.compile(rf"(?<!\w)({either})\)"),
        beside=re.compile(rf"(?:[\s.,;…~|–—-]{{1,9}}\(?[{letters}]\)?(?![A-Za-z]))+\W{{0,9}}$"),
        taken_back=re.compile(
            rf"\b(?i:{_TAKES_BACK})\W.{{0,60}}?(?<!\w)[{letters}]{_NO_LETTER_NEXT}|\b(?i:or)\s\(?[{letters}]{_NO_LETTER_NEXT}(?!\s[a-z])"
        ),
        line_back=re.compile(
            rf"^\W{{0,5}}(?:(?i:{_TAKES_BACK}|or)(?!\w).{{0,60}}?(?<!\w)[{letters}]{_NO_LETTER_NEXT}(?!\s[a-z])"
            rf"|(?i:(?:it|that|this)(?:\sis|\swas|['’]s)\s{_WRONG}))",
            re.MULTILINE,
        ),
        denied=re.compile(rf"(?<!\w){one}(?:(?i:{_AND}){one}){{1,8}}\s(?i:are)\s(?:\w{{1,20}}\s){{0,2}}?(?i:{_WRONG})[.,;]?"),
        bracketed=re.compile(rf"(?<!\w)\(({either})\)"),
    )


def stated(text: str) -> tuple[str, str] | None:
    """Return (the rest of the line after the last statement, the following text). A statement is ``the answer is``, unless the text denies
    it. If the line ends there, the next line with content counts."""
    last = None
    for found in _STATEMENT.finditer(text):
        last = last if _refused(text, found.end()) else found
    if last is None:
        return None
    line, _, rest = text[_BEHIND.match(text, last.end()).end() :].partition("\n")  # type: ignore[union-attr]
    return line, rest


def taken_back(rest: str, letters: str) -> bool:
    """Return whether a later line names another letter instead: ``Correction: D``."""
    return _patterns(letters).line_back.search(rest) is not None


def answered(span: str, letters: str, *, statement: bool = False) -> str | None:
    """Return the letter that a span answers with; "" if it names several, or takes one back; None if no letter is used as an answer.

    ``statement``: the span follows "the answer is", so ``C Paris`` is an answer too.
    """
    span, patterns = span[:_LONGEST], _patterns(letters)
    bare = patterns.denied.sub("", _MARKUP.sub("", span)).strip()
    first = patterns.leading.match(bare)
    if first and _stands(first, patterns, statement=statement, emphasised=bool(_EMPHASISED.match(span))):
        letter = (first[1] or first[2]).upper()
        return "" if _others(patterns, bare[first.end() :], letter) else letter
    cued = [match for match in patterns.cued.finditer(bare) if not _denied(match)]
    found = {(match[1] or match[2]).upper() for match in cued}
    if len(found) == 1 and not any(_goes_on(patterns, match) for match in cued):
        return found.pop()
    return "" if found else None


def last_line(text: str) -> str:
    """Return the last line; "" if it is one of several listed options."""
    *_, before, last = ("", "", *text.rstrip().rsplit("\n", 2))
    for shape in (_OPTION, _LONE):
        option, other = shape.match(last), shape.match(before)
        if option and other and option[1] != other[1]:
            return ""
    return last[:_LONGEST]


def bracketed(text: str, letters: str) -> set[str]:
    """Return the letters that are in brackets and are not denied: ``(B)``."""
    return {match[1].upper() for match in _patterns(letters).bracketed.finditer(text) if not _denied(match)}


def _stands(first: re.Match[str], patterns: _Patterns, *, statement: bool, emphasised: bool) -> bool:
    """Return whether the letter at the beginning is an answer: after it comes nothing, a mark, a reason, or the statement that it is
    right."""
    letter, rest = first[1] or first[2], first.string[first.end() :].lstrip("]\"'”’>")
    if _is_number(first) or _DENIED_AFTER.match(first.string, first.end()) or _OPERATOR_NEXT.match(rest) or _ABBREVIATION.match(rest):
        return False
    if not first[1] and not rest.strip(" .!。"):
        return letter != "I" or statement or emphasised  # a sentence that ends after its pronoun
    if first[1] or rest[0] in ").:":
        return True
    if letter.islower():
        return False
    if _RIGHT.match(rest) or (statement and patterns.joined.match(rest)):
        return True
    if letter == "I":
        return False
    titled = emphasised or (letter != "A" and re.match(r"\s[A-Z0-9]", rest) is not None)
    return _REASON.match(rest) is not None or (statement and titled)


def _others(patterns: _Patterns, rest: str, letter: str) -> bool:
    listed = {other.upper() for other in patterns.listed.findall(_EXPLAINS.split(rest, maxsplit=1)[0])} - {letter}
    return bool(listed or patterns.joined.match(rest) or patterns.beside.match(rest) or patterns.taken_back.search(rest))


def _goes_on(patterns: _Patterns, match: re.Match[str]) -> bool:
    """Return whether another letter is joined to the one that a cue names, or is offered before or after it."""
    text, end = match.string, match.end()
    return bool(
        patterns.joined.match(text, end)
        or patterns.taken_back.search(text, end)
        or _OR_ELSE.search(text[max(0, match.start() - 30) : match.start()])
    )


def _refused(text: str, end: int) -> bool:
    return _REFUSED.search(text[max(0, end - 120) : end]) is not None


def _is_number(match: re.Match[str]) -> bool:
    """Return whether the match is a number: ``e`` and ``i`` are numbers, ``(i)`` is a Roman one."""
    return match[1] == "i" or (not match[1] and match[2] in ("e", "i"))


def _denied(match: re.Match[str]) -> bool:
    """Return whether the text says that the letter is not the answer, or the letter is not used as an answer."""
    start, end = match.span(1) if match[1] else match.span(2)
    text, before = match.string, match.string[max(0, start - 30) : start]
    if _is_number(match) or _ABBREVIATION.match(text, end):
        return True
    if text[start:end] == "I" and not match[1] and not _NAMES_I.search(match[0]):
        return True  # the pronoun after "therefore"
    return bool(_DENIED_BEFORE.search(before) or _refused(text, start) or _DENIED_AFTER.match(text, end))
