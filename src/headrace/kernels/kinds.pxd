# The kinds of `kinds.py`, as C knows them.
ctypedef long long Int
ctypedef double Float
ctypedef bint Bool
ctypedef unsigned int UInt
ctypedef unsigned long long ULong
ctypedef double[::1] Doubles
ctypedef long long[::1] Longs
ctypedef long long[:, ::1] LongTable
ctypedef int[::1] Ints
ctypedef unsigned int[::1] UInts
ctypedef unsigned int[:, ::1] UIntTable
ctypedef unsigned long long[::1] ULongs
ctypedef unsigned char[::1] Bytes
ctypedef unsigned char[:, ::1] ByteTable
ctypedef const double[::1] GivenDoubles
ctypedef const long long[::1] GivenLongs
ctypedef const int[::1] GivenInts
ctypedef const unsigned int[::1] GivenUInts
ctypedef const unsigned int[:, ::1] GivenUIntTable
ctypedef const unsigned long long[::1] GivenULongs
ctypedef const unsigned char[::1] GivenBytes
