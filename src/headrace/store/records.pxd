# The columns of a table of fields, as in `records.py`.
cdef enum:
    OFFSET = 0
    WIDTH = 1
    UNIT = 2
    ROWS = 3
    COUNT = 4
    TO = 5
    FIELD_WORDS = 6
