"""Sizes of batches, known before memory is taken for them."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.spec import Signature
from headrace.views.view import View

# Key, probability, table size, priority and times sampled of an item.
_INFO_NBYTES = 40
# Of a view on metadata.
_NUMBER_NBYTES = 8


def item_nbytes(signature: Signature, views: Mapping[str, View] | None) -> int:
    """Returns the bytes of an item of one step in a batch.

    Args:
        signature: of a step.
        views: that the batch presents; None presents the signature's tree.
    """
    if views is None:
        nbytes = signature.nbytes
    else:
        nbytes = sum(
            len(view.offsets) * _column_nbytes(view.data_col or name, signature)
            for name, view in views.items()
        )
    return nbytes + _INFO_NBYTES


def check_batch(batch_size: int, item_nbytes: int, most_nbytes: int) -> None:
    """Raises if a batch is certainly too large: with items of one step it has more than `most_nbytes`.

    Args:
        batch_size: number of items.
        item_nbytes: see the function of this name.
        most_nbytes: limit of the server.

    Raises:
        ValueError: it is too large.
    """
    nbytes = batch_size * item_nbytes
    if nbytes > most_nbytes:
        raise ValueError(
            f"batch_size: expected a batch of at most {most_nbytes} bytes, which the limits of the server allow, got "
            f"{batch_size} items of together {nbytes} bytes; ask for fewer"
        )


def _column_nbytes(path: str, signature: Signature) -> int:
    """Returns the bytes of a column, or of all columns below a path."""
    found = [
        spec.nbytes for name, spec in signature.columns.items() if name == path or name.startswith(f"{path}/")
    ]
    return sum(found) if found else _NUMBER_NBYTES
