# The columns of a table of fields, as in `records.py`.
cdef enum:
    OFFSET = 0
    WIDTH = 1
    ROWS = 3
    COUNT = 4
    TO = 5
