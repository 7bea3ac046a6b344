# The constants of `layout.py` that kernels use; tests/store/test_layout.py compares the two.
from headrace.store.layout cimport STREAM

cdef enum:
    FIRST = 0
    SPAN = 1
    LIVE = 2
    CHANGES = 3
    UNIQUE = 4
    SAMPLER_KIND = 5
    REMOVER_KIND = 6
    FLAGS = 7
    HAS_SEQUENCES = 1
    HAS_KEY_INDEX = 2
    DELETES = 10
    LARGEST_PRIORITY = 14
    RING_WORDS = 15
    PRIORITY_OF_ALL = 0
    FIFO = 0
    LIFO = 1
    UNIFORM = 2
    PRIORITIZED = 3
    HEAP = 4
    CUSTOM = 5
    REAL = 0
    PADDED = 1
    LOOKAHEAD = 2
    WINDOW_WORDS = 3
    # The sum tree.
    CHILDREN = 16
    CHILD_BITS = 4
    SUMMED = 2
    # The words of an item's record, of 32 bits.
    RECORD_ROW = 2
    RECORD_TIMES = 3
    RECORD_WORDS = 4
    # Parameters and counters of kernels.
    MAX_SIZE = 0
    INSERTED = 1
    SAMPLED = 2
    # The journal.
    COUNT = 1
    ENTRIES = 32
    ENTRY_SLOT = 0
    ENTRY_KEY = 1
    ENTRY_ROW = 2
    ENTRY_TIMES = 3
    ENTRY_PRIORITY = 4
    ENTRY_UPDATE = 5
    ENTRY_WINDOW = 6
    ENTRY_WORDS = 9
    # The rows of a draw's integers.
    SLOT = 0
    TIMES = 1
    SIZE = 2
    ROW = 3
    # Why inserting stopped.
    DONE = 0
    NO_SLOT = 1
    NO_WINDOWS = 2
    NO_PRIORITIES = 3
    # Problems of an item in a file.
    NO_PROBLEM = 0
    KEY_FALLS = 1
    KEY_UNUSED = 2
    SPENT = 3
    BAD_PRIORITY = 4
    LATE_UPDATE = 5
    BAD_WINDOW = 6
    # Ends of episodes, by number.
    DROP = 0
    TRUNCATE = 1
    TILE = 3
    LAST = 4
    CONTINUE = 5
    WHOLE = 6
    SELECTED = 7

# Too large for a constant of an enum on every compiler.
cdef extern from *:
    """
    #define HR_DEAD 0xFFFFFFFFLL
    """
    const long long DEAD "HR_DEAD"
