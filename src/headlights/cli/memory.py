"""What the command says where memory does not suffice: one line, and what to lower."""

import re
import sys

_TRAINING = (
    "lower training.batch_tokens with --set, and raise training.accumulate as much, which leaves the updates "
    "as they are"
)
_LINES = "lower --beam, or shorten the longest lines"
_PAIRS = "shorten the longest pairs"
_CURES = {
    "train": _TRAINING,
    "compare": _TRAINING,
    "translate": _LINES,
    "evaluate": _LINES,
    "score": _PAIRS,
    "align": _PAIRS,
    "prepare": "give fewer --workers or --tokenizer-pairs",
    "view": "shorten the text, or lower --beam or --top",
    "senses": "give fewer or shorter sentences",
    "bench": "leave large rows out with --rows",
}
_CURE = "give it less at once, or end other programs"  # of any other command
_ALLOCATOR = re.compile("DefaultCPUAllocator: (can't allocate|not enough) memory")
_SIZE = re.compile(r"allocate ([\d.]+ \w+)")


def is_out_of_memory(error: Exception) -> bool:
    """Tell want of memory from all other errors.

    Args:
        error: Python's, NumPy's, torch's or any other.

    Returns:
        Whether more memory was asked for than there is, on a processor or on a GPU.
    """
    torch = sys.modules.get("torch")  # not imported for this: unless it is there, no tensor was too large
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    # For a processor torch has no kind of its own.
    return isinstance(error, kinds) or (
        isinstance(error, RuntimeError) and _ALLOCATOR.search(str(error)) is not None
    )


def memory_line(error: Exception, command: str) -> str | None:
    """What to say of an error that means want of memory.

    Args:
        error: What ended the command.
        command: Its name, as "train"; of no known one the advice is general.

    Returns:
        One line that says what to lower; None: the error is another.
    """
    if is_out_of_memory(error):
        size = _SIZE.search(str(error))
        asked = "" if size is None else f" for another {size[1]}"
        return f"the memory did not suffice{asked}; {_CURES.get(command, _CURE)}"
    if isinstance(error, RuntimeError):
        from concurrent.futures.process import BrokenProcessPool

        if isinstance(error, BrokenProcessPool):
            return (
                "a worker process was ended from outside, most often because the memory did not suffice; "
                "give fewer --workers"
            )
    return None
