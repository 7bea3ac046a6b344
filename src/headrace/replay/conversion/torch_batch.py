"""Batches of torch tensors: on the CPU without a copy, on CUDA through pinned memory and a separate stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.batches.conversion import as_tensor
from headrace.replay.conversion.conversion import Conversion
from headrace.replay.sampling.packing import ONE_STEP, BatchLayout, PackedBatch, pack
from headrace.replay.sampling.replay_sample import ColumnsByName, SampleInfo
from headrace.trees import map_leaves

try:
    import torch

    from headrace.batches.torch_devices import SideStream, torch_device
except ImportError as error:
    raise ImportError('to="torch" needs torch: pip install "headrace[torch]"') from error


# torch pickles tensors of these dtypes but cannot unpickle them. They are sent as signed integers with the same bits.
_TRAVEL_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(slots=True)
class TorchBatch(ColumnsByName):
    """A `ReplaySample` of tensors; it can be pickled.

    Attributes:
        data: the sample's tree, of tensors `[B, ...]` or `[B, L, ...]`.
        info: keys, priorities and so on of the items, in NumPy.
        mask: bool[B, L], or None.
        layout: the lengths of the items, for `pack`.
    """

    data: Any
    info: SampleInfo
    mask: torch.Tensor | None = None
    layout: BatchLayout = ONE_STEP

    def pack(self) -> PackedBatch:
        """Packs like `ReplaySample.pack`: tensors `[sum(lengths), ...]` on their device; lengths, offsets in NumPy."""
        return pack(self)

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> TorchBatch:
        """Returns the batch on another device; `non_blocking` as for `torch.Tensor.to`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> TorchBatch:
        """Returns the batch in page-locked memory; `DataLoader(pin_memory=True)` calls this."""
        return self._map(torch.Tensor.pin_memory)

    def tensors(self) -> list[torch.Tensor]:
        """Returns the tensors of the data, then the mask."""
        found: list[torch.Tensor] = []
        self._map(found.append)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        dtypes = [tensor.dtype for tensor in self.tensors()]
        travelling = self._map(lambda tensor: tensor.view(_TRAVEL_AS.get(tensor.dtype, tensor.dtype)))
        return _arrived, (travelling.data, self.info, travelling.mask, self.layout, dtypes)

    def _map(self, function: Callable[[torch.Tensor], Any]) -> TorchBatch:
        mask = None if self.mask is None else function(self.mask)
        return TorchBatch(map_leaves(function, self.data), self.info, mask, self.layout)


def _arrived(
    data: Any, info: SampleInfo, mask: torch.Tensor | None, layout: BatchLayout, dtypes: list[torch.dtype]
) -> TorchBatch:
    """Returns a batch from its pickle, with the original dtypes."""
    given = iter(dtypes)
    return TorchBatch(data, info, mask, layout)._map(lambda tensor: tensor.view(next(given)))


def torch_conversion(device: Any) -> Conversion:
    """Returns the conversion for a device.

    Raises:
        ValueError: torch does not know the device, or this machine lacks the CUDA device.
    """
    if device is None:
        return ToTorch()
    wanted = torch_device("device", device)
    if wanted.type == "cpu":
        return ToTorch()
    if wanted.type != "cuda":
        return ToDevice(wanted)
    return ToCuda(wanted)


def torch_converter(device: Any) -> Callable[[Any], TorchBatch]:
    """Returns the conversion of single samples, on the caller's stream if the device is CUDA's.

    Raises:
        ValueError: as `torch_conversion`.
    """
    wanted = torch_device("device", "cpu" if device is None else device)
    to_torch = ToTorch()
    if wanted.type == "cpu":
        return to_torch.convert
    if wanted.type != "cuda":
        return ToDevice(wanted).convert
    return lambda sample: to_torch.convert(sample).pin_memory().to(wanted, non_blocking=True)


class ToTorch:
    """Conversion to tensors over the sample's own memory."""

    # Rules: loaders LD4

    def convert(self, sample: Any) -> TorchBatch:
        """Makes the tensors without a copy."""
        mask = None if sample.mask is None else as_tensor(sample.mask)
        return TorchBatch(map_leaves(as_tensor, sample.data), sample.info, mask, sample.layout)

    def deliver(self, converted: TorchBatch) -> TorchBatch:
        """Does nothing."""
        return converted


class ToDevice:
    """Conversion to tensors on a device other than the CPU and CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_cpu = ToTorch()

    def convert(self, sample: Any) -> TorchBatch:
        """Copies to the device."""
        return self._on_cpu.convert(sample).to(self._device)

    def deliver(self, converted: TorchBatch) -> TorchBatch:
        """Does nothing."""
        return converted


class ToCuda:
    """Conversion to tensors on a CUDA device, copied on a side stream while the learner's stream computes."""

    def __init__(self, device: torch.device) -> None:
        self._on_cpu = ToTorch()
        self._side = SideStream(device)

    def convert(self, sample: Any) -> tuple[TorchBatch, torch.cuda.Event]:
        """Starts the copy."""
        return self._side.start(self._on_cpu.convert(sample), lambda function, batch: batch._map(function))

    def deliver(self, converted: tuple[TorchBatch, torch.cuda.Event]) -> TorchBatch:
        """Lets the learner's stream wait for the copy; the learner itself does not wait."""
        batch, copied = converted
        self._side.finish(batch.tensors(), copied)
        return batch
