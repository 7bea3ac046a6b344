cimport cython

from headrace.kernels.hints cimport in_order, power, prefetch
from headrace.kernels.kinds cimport *
from headrace.kernels.numbers cimport Numbers
from headrace.store.pages.pinning cimport Pins
from headrace.store.window cimport Window
from headrace.tables.indexes.heap cimport Heap
from headrace.tables.indexes.key_index cimport KeyIndex
from headrace.tables.items.layout cimport *
from headrace.tables.indexes.sum_tree cimport SumTree

# The data of one selector of a table.
@cython.final
cdef class Index:
    cdef readonly Int kind
    cdef double exponent
    cdef readonly SumTree tree
    cdef readonly Heap heap
    cdef void insert(self, Int slot, double priority) noexcept nogil
    cdef void update(self, Int slot, double priority) noexcept nogil
    cdef void remove(self, Int slot) noexcept nogil
    cdef void refresh(self, Longs slots, Int first, Int count) noexcept nogil

@cython.final
cdef class Items:
    cdef readonly Pins pins
    cdef readonly Window window
    cdef readonly Numbers numbers
    # The same memory twice: RECORD_WORDS words of 32 bits an item, or two of 64, of which the first is the key.
    cdef UInts records
    cdef ULongs keys
    cdef Doubles priorities
    # The same memory, for the journal.
    cdef Longs priority_bits
    cdef UInts windows
    cdef Longs last_updates
    cdef Doubles common
    cdef Doubles ring_floats
    cdef UInts common_window
    cdef Longs ring
    cdef Longs journal
    cdef Longs counters
    cdef readonly Index sampler
    cdef readonly Index remover
    cdef readonly Int capacity
    # Not used while keys rise along the ring.
    cdef readonly KeyIndex key_index
    # Of the index; here, since a look at it takes no call of another module.
    cdef bint has_key_index
    cdef readonly bint keys_differ
    # Scratch.
    cdef Longs changed
    cdef Doubles uniforms
    cdef Int slot_at(self, Int place) noexcept nogil
    cdef ULong key_of(self, Int slot) noexcept nogil
    cdef Int row_of(self, Int slot) noexcept nogil
    cdef bint is_dead(self, Int slot) noexcept nogil
    cpdef double priority_of(self, Int slot) noexcept nogil
    cdef Int window_of(self, Int slot, Int word) noexcept nogil
    cdef void ask_for(self, Int slot) noexcept nogil
    cdef Int find_slot(self, ULong key) noexcept nogil
    cdef Int _find_rising(self, ULong key) noexcept nogil
    cdef bint _index_keys(self) noexcept nogil
    cdef void remember(self, Int slot) noexcept nogil
    cdef void remove_slot(self, Int slot) noexcept nogil
    cdef void pin(self, Int slot, Int change) noexcept nogil
    cdef void close_ends(self) noexcept nogil
    cdef void fill(self, Index index) noexcept nogil

cdef double LARGEST

cpdef double weight(double exponent, double priority) noexcept nogil
cdef bint is_priority(double priority) noexcept nogil
