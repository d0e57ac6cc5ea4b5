"""Whole numbers in English words."""

from __future__ import annotations

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
BELOW = 1_000_000


def spelled(number: int) -> str:
    """A number from 0 to 999,999 in words."""
    if not 0 <= number < BELOW:
        raise ValueError(f"{number} is not a number from 0 to {BELOW - 1:,}.")
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    head, rest = divmod(number, size)
    tail = f"{' and' if rest < 100 else ''} {spelled(rest)}" if rest else ""
    return f"{spelled(head)} {name}{tail}"


def spelled_year(year: int) -> str:
    """A year from 1100 to 1999 in words."""
    century, rest = divmod(year, 100)
    tail = "hundred" if rest == 0 else f"oh {spelled(rest)}" if rest < 10 else spelled(rest)
    return f"{spelled(century)} {tail}"
