from headrace.kernels.handoff cimport ask, leave, take
from headrace.kernels.hints cimport move
from headrace.kernels.kinds cimport *
from headrace.store.copying cimport SHORT

cdef void _copy_back(
    GivenBytes column, Int stride, GivenLongs newest, GivenLongs ages, GivenLongs backs, Bool is_post,
    Bool shows_nearest, GivenBytes fill, Bytes out
) noexcept nogil
