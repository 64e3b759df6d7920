"""Numbers with what they count, for messages."""


def counted(number: int, thing: str) -> str:
    """A number and its noun, in the singular where there is one: "1 pair", "2,000 pairs".

    Args:
        number: How many.
        thing: What, in the singular; words before the noun may come with it.

    Returns:
        Both, thousands parted by commas.
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
