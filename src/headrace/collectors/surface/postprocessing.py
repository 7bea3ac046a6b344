"""The user's function on each batch."""

# Rules: collectors CR10

from __future__ import annotations

import warnings

from headrace.collectors.batches.handing_out import Postproc
from headrace.collectors.options import CollectorOptions


class Postprocessing:
    """The property `postproc` of a collector."""

    _options: CollectorOptions

    @property
    def postproc(self) -> Postproc | None:
        """The function that is called on each batch; None: none."""
        return self._options.postproc

    @property
    def postprocs(self) -> Postproc | None:
        """A deprecated name of `postproc`."""
        warnings.warn("postprocs is deprecated; use postproc", DeprecationWarning, stacklevel=2)
        return self.postproc
