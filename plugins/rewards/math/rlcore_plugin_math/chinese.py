r"""Answers in Chinese: units, joining words, numerals, the letter of an option and phrases, in the spelling that the other modules read.

Only words that a table here knows are translated. Any other word stays, so that ``5不对`` is not 5.

>>> western("12平方厘米"), western("x=1或x=-2"), western("选项B")
('12\\text{ cm}^2', 'x=1 \\text{ or } x=-2', '(B)')
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["western"]

_HAN = "\u3001\u3002\u4e00-\u9fff"
_ANY_HAN = re.compile(f"[{_HAN}]")
_TEXT = re.compile(rf"\\text ?\{{([^{{}}]*[{_HAN}][^{{}}]*)\}}")

_DOLLARS = re.compile(rf"\$([^$]+)\$ ?(?=[{_HAN}]|\\text ?\{{ ?[{_HAN}])")
_RAISED = r"(?: ?\^ ?(?P<braced>\{ ?)?(?P<power>[23])(?(braced) ?\}))?"
_LONGEST = 400
_LENGTHS = {"毫米": "mm", "厘米": "cm", "公分": "cm", "分米": "dm", "米": "m", "千米": "km", "公里": "km"}
_UNITS = {
    f"{prefix}{name}": f"{unit}{power}" for prefix, power in (("", ""), ("平方", "^2"), ("立方", "^3")) for name, unit in _LENGTHS.items()
}
_UNITS |= {"毫克": "mg", "克": "g", "千克": "kg", "公斤": "kg", "吨": "t", "升": "l", "毫升": "ml", "公顷": "hectares", "亩": "mu"}
_UNITS |= {"秒": "s", "秒钟": "s", "分钟": "min", "小时": "h", "个小时": "h", "天": "days", "日": "days", "周": "weeks", "星期": "weeks"}
_UNITS |= {"个星期": "weeks", "个月": "months", "年": "years", "岁": "years", "元": "yuan", "块": "yuan", "角": "jiao", "分": "points"}
_UNITS |= {f"{name}{per}{hour}": "km/h" for name in ("千米", "公里") for per in ("/", "每") for hour in ("时", "小时")}
_UNITS |= {"米/秒": "m/s", "米每秒": "m/s", "人": "people", "名": "people", "位": "people", "个人": "people", "次": "occurrences"}
_UNITS |= dict.fromkeys("个個只条张本支件棵辆台朵颗盒瓶种", "objects")
_DEGREES = {"度": "^\\circ", "摄氏度": "^\\circ C"}
_SCALES = {"十": 1, "百": 2, "千": 3, "万": 4, "十万": 5, "百万": 6, "千万": 7, "亿": 8, "十亿": 9, "百亿": 10, "千亿": 11, "万亿": 12}


def _either(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))  # type: ignore[call-overload]


_NAMED = (*_UNITS, *_DEGREES)
_UNIT = re.compile(
    rf"(?P<body>.*(?:[0-9)}}]|\\pi)) ?(?:(?P<unit>{_either(_NAMED)})|(?P<scale>{_either(_SCALES)})(?P<of>{_either(_NAMED)})?){_RAISED}",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?|[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
_OR, _AND = "或者|或是|或", "并且|而且|以及|且|和|与|及"
_JOINED = re.compile(rf"(?<![{_HAN}]) ?,? ?({_OR}|{_AND}) ?(?![{_HAN}])")
_OPTION = re.compile(
    r"(?:故|因此|所以|因而)?,? ?(?:本题)?(?:正确)?(?:的)?(?:答案|选项|選項|选择|應選|应选|选|選)"
    r"(?:应该|应)?(?:是|为|選|选)?(?:选项|選項)?"
    r" ?:? ?(?:\(([A-J])\)|([A-J]))\.?(?:选项|選項|项)?"
    r"|(?:\(([A-J])\)|([A-J]))(?:选项|選項|项)"
)
_PHRASES = dict.fromkeys(("无解", "無解", "没有解", "无实数解", "无实数根", "无实根", "方程无解", "空集"), "\\emptyset ")
_PHRASES |= dict.fromkeys(("全体实数", "一切实数", "任意实数", "所有实数", "实数集"), "\\mathbb{R}")
_PHRASES |= dict.fromkeys(("全体整数", "一切整数", "任意整数", "所有整数", "整数集"), "\\mathbb{Z}")
_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_PLACES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
_NUMERAL = re.compile(rf"([零〇一二两三四五六七八九十百千万亿]+)({_either(_NAMED)})?")
_PARTS = re.compile(r"([负]?)([一二两三四五六七八九十百千万]+)分之([零一二两三四五六七八九十百千万]+)")
_PERCENT = re.compile(r"百分之(?:([0-9]+(?:\.[0-9]+)?)|([零一二两三四五六七八九十百]+))")


def western(text: str) -> str:
    """Return the text with the Chinese words that are known here in the spelling of other answers."""
    if text.isascii() or len(text) > _LONGEST or not _ANY_HAN.search(text):
        return text
    text = _DOLLARS.sub(r"\1", text)
    said = " ".join(_TEXT.sub(r" \1 ", text).split()).rstrip("。. ")
    whole = said.replace(" ", "")
    for read in (_option, _phrase, _numeral):
        if (found := read(whole)) is not None:
            return found
    text = _JOINED.sub(_word, text if not _JOINED.search(said) else said).replace("、", ",").rstrip("。")
    return _measured(text)


def _option(whole: str) -> str | None:
    """Return the letter of the only option that the whole answer names."""
    match = _OPTION.fullmatch(whole)
    return f"({next(filter(None, match.groups()))})" if match else None


def _phrase(whole: str) -> str | None:
    return _PHRASES.get(whole)


def _numeral(whole: str) -> str | None:
    """Return a number in Chinese words, with its unit: ``二分之一``, ``百分之五十``, ``三天``."""
    if match := _PERCENT.fullmatch(whole):
        value = match[1] or _counted(match[2])
        return None if value is None else f"{value}%"
    if match := _PARTS.fullmatch(whole):
        under, over = _counted(match[2]), _counted(match[3])
        return None if not under or over is None else f"{'-' if match[1] else ''}\\frac{{{over}}}{{{under}}}"
    negative = whole.startswith("负")
    match = _NUMERAL.fullmatch(whole[1:] if negative else whole)
    value = _counted(match[1]) if match else None
    if match is None or value is None:
        return None
    return _measured(f"{'-' if negative else ''}{value}{match[2] or ''}")


def _counted(numeral: str) -> int | None:
    """Return the value of a numeral (``一百零五``); None if its signs are in no order that spells a number."""
    total = part = 0
    digit: int | None = None
    last, last_myriad = 10**9, 10**12
    for sign in numeral:
        if sign in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[sign]
        elif sign in _PLACES:
            if _PLACES[sign] >= last or (not digit and (sign != "十" or part)):
                return None
            last = _PLACES[sign]
            part, digit = part + (digit or 1) * last, None
        else:
            part += digit or 0
            if not part or _MYRIADS[sign] >= last_myriad:
                return None
            last, last_myriad = 10**9, _MYRIADS[sign]
            total, part, digit = total + part * last_myriad, 0, None
    return total + part + (digit or 0)


def _word(match: re.Match[str]) -> str:
    return " \\text{ or } " if re.fullmatch(_OR, match[1]) else " \\text{ and } "


def _measured(text: str) -> str:
    """Return a number and its Chinese unit with the unit's other name; ``5万`` is 50000."""
    match = _UNIT.fullmatch(_TEXT.sub(lambda word: word[1].strip(), text))
    if match is None:
        return text
    body, unit = match["body"], match["unit"] or match["of"] or ""
    if match["scale"]:
        if not _NUMBER.fullmatch(body):
            return text
        body = f"{Decimal(body.replace(',', '')).scaleb(_SCALES[match['scale']]):f}"
    if unit in _DEGREES:
        return body + _DEGREES[unit]
    name, raised, power = _UNITS.get(unit, "").partition("^")
    if match["power"]:
        raised, power = "^", match["power"]
    return f"{body}\\text{{ {name}}}{raised}{power}" if name else body
