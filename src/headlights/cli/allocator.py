"""What training and translating give back and take again: memory, and what products of a shape need."""

import ctypes
import os

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of <malloc.h>


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, rather than give it back to the system.

    The system clears each page that it gives, which takes a small model up to a tenth of its time. The
    process stays as large as it once was. Of glibc; with other libraries nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows there is no library without a name
        return
    mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most that it takes
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, 2**26)


def keep_prepared_products() -> None:
    """Have oneDNN, which multiplies short numbers, keep all that it prepares for a shape.

    Batches of text have thousands of shapes, and by itself it keeps 1,024: about 260 KB each, in many pieces,
    which it would let go of and prepare anew. The pieces also part the memory that is free, and the C library
    searched it for up to a fifth of the time of a training. To be called before the first product; a number
    in the environment stays as it is.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
