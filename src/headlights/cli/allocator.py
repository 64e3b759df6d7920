"""Memory that training and translating give back and take again, thousands of times."""

import ctypes

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
