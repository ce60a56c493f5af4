r"""Units of measure at the end of an answer: separated from the number, given one name, converted if they measure the same thing.

A noun that is not a unit names the counted objects. A noun that is a number itself (``dozen``, ``grand``, ``tens``) is neither;
``quantity.py`` knows the value of those that have one. Whether a number means the same without its unit is decided in ``nouns.py``.

>>> split_unit(r"5\text{ centimeters}")
('5', 'cm')
>>> conversion("mm^2", "cm^2")
Fraction(1, 100)
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["IMPLIED", "UNIT_NAMES", "conversion", "split_unit"]

_NAMES = """
mm: millimeter, millimeters, millimetre, millimetres
dm: decimeter, decimeters, decimetre, decimetres
cm: centimeter, centimeters, centimetre, centimetres, cms
m: meter, meters, metre, metres
km: kilometer, kilometers, kilometre, kilometres, kms
in: inch, inches
ft: foot, feet
yd: yard, yards
mi: mile, miles
mg: milligram, milligrams
g: gram, grams, gm
kg: kilogram, kilograms, kgs
lb: pound, pounds, lbs
oz: ounce, ounces
t: ton, tons, tonne, tonnes
s: second, seconds, sec, secs
min: minute, minutes, mins
h: hour, hours, hr, hrs
day: days
week: weeks
month: months
year: years, yr, yrs
l: liter, liters, litre, litres
ml: milliliter, milliliters, millilitre, millilitres
dollar: dollars, usd
cent: cents
euro: euros, eur
yuan: renminbi, rmb, cny
jiao:
degree: degrees, deg
rad: radian, radians
%: percent, pct, percentage
unit: units
mph: miles per hour, mi/h
km/h: kph, kmh, kilometers per hour, kilometres per hour
m/s: meters per second, metres per second
"""
_SIZES_TEXT = """
length: mm 1/1000, cm 1/100, dm 1/10, m 1, km 1000
imperial length: in 1, ft 12, yd 36, mi 63360
mass: mg 1/1000, g 1, kg 1000, t 1000000
imperial mass: oz 1, lb 16
time: s 1, min 60, h 3600, day 86400, week 604800
volume: ml 1/1000, l 1
money: cent 1/100, dollar 1
chinese money: jiao 1/10, yuan 1
speed: m/s 1, km/h 5/18
"""
_NOT_UNITS = frozenset(
    ("pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "mod", "and", "or", "not", "inf", "infinity")
)
_NO_UNIT_WORDS_TEXT = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million "
    "millions billion billions trillion trillions quadrillion lakh crore mln bn dozen dozens score gross pair pairs once "
    "couple couples trio trios quartet quartets quintet quintets decade decades century centuries ream reams tens ones "
    "grand k fold twofold threefold tenfold hundredfold permille permil bps ppm "
    "twice thrice half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths "
    "eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth thousandths millionth millionths squared "
    "cubed factorial doubled tripled double triple halved root power powers raised to the of by from with in plus minus "
    "times time over divided multiplied added subtracted modulo choose negative positive reciprocal inverse no not never "
    "none nor neither non without wrong false incorrect invalid is isnt are arent was were be being been will would but "
    "except unless maybe perhaps probably if then else than less more fewer greater least most about approximately almost "
    "nearly either both all any also plusminus between through until answer equals equal remainder base googol naught nil a "
    "an it this that these those i you we they approx off around roughly circa ish estimated estimate rounded cannot cant dont doesnt "
    "instead rather though however excluding above below beyond under "
    "deca deka hecto kilo mega giga tera peta exa deci centi milli micro nano pico femto atto lac lacs lakhs crores myriad "
    "myriads untrue bogus fake mistaken mistakenly erroneous refuted disproved disproven rejected denied retracted withdrawn "
    "revoked nope nah nay oops sorry wait scratch ignore disregard correction incorrectly wrongly falsely wrongfully lie lies "
    "lied lying joke joking kidding nonsense absurd impossible unlikely dubious doubtful doubtfully questionable supposedly "
    "allegedly apparently presumably hopefully possibly hardly scarcely barely guess guessed guessing inaccurate inexact fails "
    "failed nicht nein kein keine falsch oder sondern aber und statt faux pas mais sauf ou et jamais falso nunca pero sino ni mas "
    "y o niet fout maar negated inverted inversed conjugate conjugated conjugates complement transposed reversed flipped mirrored "
    "swapped increased decreased incremented decremented reduced scaled shifted truncated factorials reciprocals inverses "
    "opposite opposites binary ternary octal decimal hexadecimal hex duodecimal bound bounds minimum maximum upwards onwards "
    "recurring recurrent repeating repeated periodic repetend percentile percentiles basis "
)
_NO_UNIT_WORDS = frozenset(_NO_UNIT_WORDS_TEXT.split())
_NUMBER_WORD = re.compile(
    r"[a-z]*illi(?:on|ard)(?:s|ths?)?|googol[a-z]*|(?:eleven|twelf|[a-z]+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)tie)ths?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ties|(?:dou|tri|quadru|quintu|sextu|septu|octu|nonu|decu)p?(?:b?les?|b?led|plets?)"
)
_MOST_WORDS = 2
_MOST_POWER = 6
_SPELLED = re.compile(r"[A-Za-z]+\.?(?: ?/ ?[A-Za-z]+\.?)?")
_SINGLE = frozenset("mgshltLNJWVAKC")
_LETTERS = frozenset("abcnkpqrstuvwxyz")  # two or three of these are a product of variables


def _aliases() -> dict[str, str]:
    table: dict[str, str] = {}
    for row in _NAMES.strip().splitlines():
        name, _, others = row.partition(":")
        table |= {name: name} | {other.strip(): name for other in others.split(",") if other.strip()}
    return table


_ALIASES = _aliases()
UNIT_NAMES = frozenset(_ALIASES.values()) | frozenset(_ALIASES) | {"pound sterling", "yen"}
_KNOWN = "|".join(sorted((name for name in _ALIASES if name.isalpha() and len(name) > 1), key=len, reverse=True))
_POWER = r"(?: ?\^ ?(?:\{ ?[0-9-]+ ?\}|[0-9]))?"
_TEXT_UNIT = re.compile(rf"(?P<body>.*\S) ?\\text ?\{{(?P<unit>[^{{}}]+)\}}(?P<power>{_POWER})")
_WORD_UNIT = re.compile(rf"(?P<body>.*[0-9)}}]) (?P<unit>[A-Za-z][A-Za-z./ ]*)(?P<power>{_POWER})")
_GLUED_UNIT = re.compile(rf"(?P<body>.*[0-9)}}])(?P<unit>{_KNOWN})(?P<power>{_POWER})")
_SIGN_UNIT = re.compile(r"(?P<body>.*[0-9)}]) ?(?P<unit>%|\^\\circ(?: ?[CF])?|\\\$|\$|€|£|¥)")
_CURRENCY = re.compile(r"(?P<sign>[+-]?) ?(?P<unit>\\\$|\$|€|£|¥) ?(?P<body>-?[0-9.].*)")
_SIGNS = {"%": "%", "^\\circ": "degree", "\\$": "dollar", "$": "dollar", "€": "euro", "£": "pound sterling", "¥": "yen"}
_WAITING = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|log|ln)h? ?\^ ?(?:\{[^{}]*\}|[0-9])$")  # for its argument
_INCHES = re.compile(r"(?P<body>[+-]? ?[0-9.,]*[0-9])\"")
_MILLI_OR_MEGA = re.compile(r"[mM](?:[gmslwvajnfctb]|hz|ev|pa|mol|bar|cal|ohm|bit|byte|rad|bps)", re.IGNORECASE)
IMPLIED = {"square": "2", "sq": "2", "sq.": "2", "cubic": "3", "cu": "3", "cu.": "3"}


def _sizes() -> dict[str, tuple[str, Fraction]]:
    table: dict[str, tuple[str, Fraction]] = {}
    for row in _SIZES_TEXT.strip().splitlines():
        measure, _, units = row.partition(":")
        table |= {name: (measure, Fraction(size)) for name, size in (unit.split() for unit in units.split(","))}
    return table


_SIZES = _sizes()


def conversion(unit: str, into: str) -> Fraction | None:
    """Return how many of ``into`` one ``unit`` is (``cm`` and ``mm``, and their powers); None if they measure different things."""
    (name, _, power), (other, _, other_power) = unit.partition("^"), into.partition("^")
    of_name, of_other = _SIZES.get(name), _SIZES.get(other)
    if of_name is None or of_other is None or of_name[0] != of_other[0] or power != other_power:
        return None
    ratio = of_name[1] / of_other[1]
    exponent = int(power or "1")
    return ratio**exponent if abs(exponent) <= _MOST_POWER else None


def split_unit(text: str) -> tuple[str, str]:
    """Return (the text before the unit, the unit's canonical name); (the text, "") if there is none. Takes normalised text."""
    if match := _CURRENCY.fullmatch(text):
        return match["sign"] + match["body"], _SIGNS[match["unit"]]
    if match := _SIGN_UNIT.fullmatch(text):
        return match["body"].strip(), _SIGNS.get(match["unit"], match["unit"])
    if match := _INCHES.fullmatch(text):
        return match["body"], "in"
    match = _TEXT_UNIT.fullmatch(text) or _WORD_UNIT.fullmatch(text) or _GLUED_UNIT.fullmatch(text)
    if match is None or not _may_be_unit(match["unit"].strip()) or _is_formula(match["body"], match["unit"]):
        return text, ""
    return match["body"].strip(), _name(match["unit"], match["power"])


def _may_be_unit(unit: str) -> bool:
    if not unit or unit == "MM" or any(sign in "0123456789()=" for sign in unit) or _NOT_UNITS & set(unit.lower().split()):
        return False
    if len(unit) == 1:
        return unit in _SINGLE
    if unit.lower().strip(" .") in _ALIASES:
        return True
    return _is_noun(unit) and (len(unit) > 3 or not set(unit) <= _LETTERS)


def _is_noun(unit: str) -> bool:
    """Return whether the unit is one or two words, or two with "per" between, none of which changes the number or takes it back
    (``million``, ``is wrong``)."""
    words = unit.split()
    if len(words) > 2 and words[-2].lower() == "per":
        words = words[:-2] + words[-1:]
    return 0 < len(words) == len(set(words)) <= _MOST_WORDS and all(_SPELLED.fullmatch(word) and _counts_nothing(word) for word in words)


def _counts_nothing(word: str) -> bool:
    """Return whether none of the words between slashes is a number, or changes one."""
    parts = [part.strip(" .") for part in word.lower().split("/")]
    return not any(part in _NO_UNIT_WORDS or _NUMBER_WORD.fullmatch(part) for part in parts)


def _is_formula(body: str, unit: str) -> bool:
    r"""Return whether the text is a formula: ``\\int_0^1 x dx`` does not end in a unit "x dx", nor ``\\cos^2 t`` in tons."""
    return bool(_WAITING.search(body)) or (("_" in body or "^" in body) and unit.strip().lower() not in _ALIASES)


def _name(unit: str, power: str) -> str:
    words = unit.strip(" .").split()
    exponent = "".join(sign for sign in power if sign in "-0123456789")
    if words and words[0].lower() in IMPLIED and not exponent:
        exponent, words = IMPLIED[words[0].lower()], words[1:]
    spelled = " ".join(words)
    lower = spelled.lower()
    if spelled[:1] == "M" and _MILLI_OR_MEGA.fullmatch(spelled):
        name = f"M{lower[1:]}"  # a million of them, not a thousandth
    else:
        name = _ALIASES.get(spelled) or _ALIASES.get(lower) or lower
    return f"{name}^{exponent}" if exponent else name
