"""The text that the built-in embedding is learned from: text.txt with its choices made."""

import re
from importlib.resources import files
from random import Random

_CHOICE = re.compile(r"\{([^{}]*)\}")
_TIMES = 40


def text(*, seed: int = 0) -> list[str]:
    """Say every line of text.txt many times, each time with other words at its choices.

    Args:
        seed: Decides the choices.

    Returns:
        English sentences without capitals and punctuation.
    """
    random = Random(seed)
    lines = (files("headlights.senses") / "text.txt").read_text(encoding="utf-8").splitlines()
    return [
        _CHOICE.sub(lambda match: random.choice(match[1].split("|")), line)
        for line in lines
        if line and not line.startswith("#")
        for _ in range(_TIMES)
    ]
