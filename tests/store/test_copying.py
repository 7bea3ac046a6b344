"""Fields copied out of records and into them, compared with NumPy."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

from headrace.spec import ArraySpec, Signature
from headrace.store.copying import copy, place_fields
from headrace.store.records import COUNT, ROWS, TO, by_rows, columns_of, fields, record_layout
from headrace.store.staging import Stage

SHAPES = [
    (np.int64, ()),
    (np.float32, (3,)),
    (np.int16, (5,)),
    (np.uint8, (7,)),
    (np.bool_, ()),
    (np.float64, (8,)),
]
# Of every width: those that are copied in one instruction, and the others.
WIDTHS = [(np.uint8, (width,)) for width in range(1, 65)]
# Columns that fill hundreds of bytes between two that are shown.
FAR = [(np.float64, (8,))] * 12 + [(np.uint8, ())]


@settings(max_examples=fewer(60))
@given(
    st.lists(st.sampled_from(SHAPES + WIDTHS), min_size=1, max_size=6),
    st.lists(st.integers(0, 700), min_size=1, max_size=3),
    st.data(),
)
@example(FAR, [40, 3], None)
def test_fields_are_those_of_their_rows(kinds, counts, data):
    """Whatever the columns, whichever of them are shown of which rows; a row below 0 stands for any."""
    signature = Signature(
        {f"c{number}": ArraySpec(shape, kind) for number, (kind, shape) in enumerate(kinds)}
    )
    layout = record_layout(signature)
    random = np.random.default_rng(0)
    # What stands before the records is in none of them.
    memory = np.full((51, layout.nbytes), 99, np.uint8)
    records = memory[1:]
    records[:] = random.integers(0, 2, records.shape)
    columns = columns_of(records, layout, signature)
    rows = random.integers(-1, 50, sum(counts))
    begins = np.cumsum([0, *counts])
    if data is None:
        shown = [(0, "c0"), (1, "c0"), (0, "c12"), (1, "c12")]
    else:
        one = st.tuples(st.integers(0, len(counts) - 1), st.sampled_from(list(columns)))
        shown = data.draw(st.lists(one, min_size=1, max_size=8))
    table = fields(layout, [(name, signature.columns[name].nbytes) for _, name in shown])
    end = 0
    for line, (which, name) in enumerate(shown):
        table[line, ROWS], table[line, COUNT], table[line, TO] = begins[which], counts[which], end
        end += -(-counts[which] * signature.columns[name].nbytes // 64) * 64
    out = np.full(end + 64, 99, np.uint8)
    copy(records.reshape(-1), layout.nbytes, rows, by_rows(table), out)
    written = np.zeros(len(out), bool)
    for line, (which, name) in zip(table, shown, strict=True):
        some = rows[begins[which] : begins[which + 1]]
        spec, nbytes = signature.columns[name], counts[which] * signature.columns[name].nbytes
        got = out[line[TO] : line[TO] + nbytes].view(spec.dtype).reshape(len(some), *spec.shape)
        wanted = columns[name][np.maximum(some, 0)]
        assert got[some >= 0].tobytes() == wanted[some >= 0].tobytes()
        assert (out[line[TO] : line[TO] + nbytes] < 2).all()
        written[line[TO] : line[TO] + nbytes] = True
    assert (out[~written] == 99).all()


@given(
    st.lists(st.sampled_from(SHAPES + WIDTHS), min_size=1, max_size=6), st.integers(1, 70), st.integers(0, 5)
)
@example(WIDTHS, 3, 2)
def test_what_was_copied_is_placed_again(kinds, lanes, row):
    """The way back: the records of the lanes get their fields, and no other byte changes."""
    signature = Signature(
        {f"c{number}": ArraySpec(shape, kind) for number, (kind, shape) in enumerate(kinds)}
    )
    layout, stage = record_layout(signature), Stage(signature, lanes)
    random = np.random.default_rng(0)
    for array in stage.arrays.values():
        array[...] = random.integers(0, 2, array.shape)
    records = np.full((row + lanes + 2, layout.nbytes), 99, np.uint8)
    wanted = records.copy()
    for name, column in columns_of(wanted, layout, signature).items():
        column[row : row + lanes] = stage.arrays[name]
    place_fields(stage.memory, stage.fields, lanes, records.reshape(-1), layout.nbytes, row)
    assert records.tobytes() == wanted.tobytes()
