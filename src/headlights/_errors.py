"""What tells a mistake in the input from a mistake in this package."""


class InputError(ValueError):
    """Something that came from outside cannot be used: a file, a folder, a recipe, an option.

    The message is one line that names it, what was expected, what came and the likely fix. The command prints
    it and ends with status 2; any other ValueError is a bug and keeps its traceback.
    """
