# The constants of `layout.py` that kernels use; tests/store/test_layout.py compares the two.
cdef enum:
    LANES = 0
    USED = 1
    NEXT = 2
    PREVIOUS = 3
    REFERENCES = 4
    STARTS = 5
    LINKED_ROWS = 6
    VERSIONED = 7
    PAGE_WORDS = 8
    BY_STEP = 1
    BY_ROW = 2
    STEP_MASK = 0xFFFFFFF
    STEP_HALF = 0x8000000
    ENDED = 0x10000000
    FINAL = 0x20000000
    LINKED = 0x40000000
    NO_LINK = 0
    AHEAD = 64
    UNKNOWN = 0
    EDGE = 1
    KNOWN = 2
    ENDED_FROM = 0
    OPEN_FROM = 1
    LAST_ROW = 2

# Too large for a constant of an enum on every compiler.
cdef extern from *:
    """
    #define HR_EMPTY 0x80000000LL
    #define HR_ORPHAN 0xFFFFFFFFLL
    #define HR_STREAM 0xFFFFFFFFLL
    """
    const long long EMPTY "HR_EMPTY"
    const long long ORPHAN "HR_ORPHAN"
    const long long STREAM "HR_STREAM"
