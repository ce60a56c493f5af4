r"""Decides whether a number means the same without the noun behind it.

A noun that no list knows may be a number itself, of another language or of slang (``5 mil`` is 5000). A regular plural of English that is
not a number names the counted objects. Other nouns count only if a list has them.

>>> may_be_omitted("apples"), may_be_omitted("cm^2"), may_be_omitted("mil"), may_be_omitted("foobar")
(True, True, False, False)
"""

from __future__ import annotations

import re

from rlcore_plugin_math.phrases import numeral
from rlcore_plugin_math.units import IMPLIED, UNIT_NAMES

__all__ = ["may_be_omitted"]

_NUMBERS_TEXT = (
    "mil mils mill mille miles mio mios mlo mld mlds mrd mrds bio bios tsd tys thou thous hundert hunderte tausend tausende dutzend "
    "dutzende zehn zwanzig cien cientos ciento cento centos cem cent mila docena docenas decena decenas duzia duzias dezena dezenas "
    "douzaine douzaines dizaine dizaines centaine centaines millier milliers dozzina dozzine centinaia migliaia tysiac tysiace sto "
    "tisic tisice duizend duizenden honderd honderden dozijn tucat doz dz dzs lk lks lacks cr crs lac kharb arab bin yuz wan yi qian "
    "bai shi man oku chou jo sen hyaku juta ribu ratus puluh trieu nghin tram elfu mia gros umpteen oodles lots heaps several few many "
    "plenty zillions bazillions gazillions kazillions squillions bajillions grands wrongs scores "
    "grosses negatives positives bakers exponents deuces "
)
_NUMBERS = frozenset(_NUMBERS_TEXT.split()) - UNIT_NAMES
"""Numbers in other languages and slang, and other words that are not objects, in letters of English."""
_NOUNS_TEXT = (
    "people men women children sheep fish deer feet teeth mice geese oxen dice data fruit furniture rice money water sugar bread milk "
    "flour th st nd rd am pm apple person student child woman unit point edge vertex vertices matrices indices radii foci maxima minima "
    "gal gallon qt quart pt pint tsp tbsp cup acre ha hectare hz khz mhz ghz newton kn joule kj mj watt kw mw gw kwh wh volt kv mv amp "
    "ampere ma mol mole mmol kelvin pa pascal kpa mpa psi atm bar ev kev mev cal kcal bit byte kb mb gb tb rpm fps ohm tesla weber "
    "farad henry coulomb hertz dl cl nm um micron nmi knot ly au parsec nanometer micrometer celsius fahrenheit mu baht peso rupee "
    "ruble won dong dinar franc krona krone pence penny quid lbf dyn erg sr becquerel sievert gray lux lumen candela siemens bus gas "
    "series species "
)
_NOUNS = frozenset(_NOUNS_TEXT.split())
"""Nouns without a regular plural, and units that are not converted."""
_MONEY = frozenset("dollar dollars cent cents euro euros pound pounds yuan yen peso pesos rupee rupees franc francs".split())  # noqa: SIM905
_COUNTRIES = frozenset("us usa american canadian australian singapore british mexican indian chinese swiss total more".split())  # noqa: SIM905
_NO_PLURAL = re.compile(r"[a-z]*(?:ss|us|is|ous|ths)|.{1,3}")
_LARGE = re.compile(
    r"[a-z]{0,9}(?:[mbnctz]|[dt]r|xt|pt)(?:il|ill|ilh|ilj|li)(?:ion|ione|oen|on|one|ao|oe|o|ard|arde|iard|iarde|iardo)[a-z]{0,2}s|[a-z]+folds"
)
"""Names of large numbers in other languages: ``millones``, ``milliards``."""
_SHORTEST = 3


def may_be_omitted(unit: str) -> bool:
    """Return whether a number means the same without this unit, which has the name that ``split_unit`` gives."""
    words = unit.partition("^")[0].lower().replace(".", "").split()
    if not words or " ".join(words) in UNIT_NAMES:
        return True
    if "per" in words:
        words = words[: words.index("per")] or words
    counted, *others = (word.partition("/")[0] for word in reversed(words))
    if counted in _MONEY and not _COUNTRIES.issuperset(others):
        return False  # five zil dollars
    return _names_objects(counted) and all(map(_qualifies, others))


def _names_objects(noun: str) -> bool:
    if noun in UNIT_NAMES or noun in _NOUNS or len(noun) == 1 or not noun.isalpha():
        return True
    if any(numeral(noun.removesuffix(ending)) is not None for ending in ("s", "es")):
        return False  # five sixes
    return noun not in _NUMBERS and noun.endswith("s") and not (_NO_PLURAL.fullmatch(noun) or _LARGE.fullmatch(noun))


def _qualifies(word: str) -> bool:
    """Return whether a word before the noun does not change the number: ``red balls``, but ``mil dollars``."""
    return word not in _NUMBERS and (len(word) >= _SHORTEST or word in IMPLIED)
