"""The pretend device as an accelerator of Lightning, which ``accelerator="auto"`` finds.

Lightning lets a package register an accelerator, but it still knows devices by their names in three
places of its connector: what ``"auto"`` chooses, the device of the strategy for one device (any
accelerator that it does not know trains on the CPU), and the device of autocast (which is CUDA).
`Connector` answers there for the pretend device, as Lightning does for CUDA.
"""

import torch
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer import trainer
from lightning.pytorch.trainer.connectors.accelerator_connector import _AcceleratorConnector

from tests.pretend.device import register_device
from tests.pretend.module import NAME

__all__ = ["Connector", "PretendAccelerator", "register_accelerator"]


class PretendAccelerator(Accelerator):
    """The accelerator ``"pretend"``, with one device."""

    def setup_device(self, device: torch.device) -> None:
        assert device.type == NAME, f"the strategy trains on {device}"

    def teardown(self) -> None:
        pass

    def get_device_stats(self, device: object) -> dict:
        return {}

    @staticmethod
    def parse_devices(devices: object) -> int:
        return int(devices)

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device(NAME, number) for number in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return NAME


class Connector(_AcceleratorConnector):
    """Lightning's own, but for what it does not know about the pretend device."""

    @staticmethod
    def _choose_auto_accelerator() -> str:
        return NAME

    def _choose_strategy(self):
        if isinstance(self.accelerator, PretendAccelerator):
            [device] = self._parallel_devices
            return SingleDeviceStrategy(device)
        return super()._choose_strategy()

    def _check_and_init_precision(self):
        is_mixed = self._precision_flag in ("16-mixed", "bf16-mixed")
        if is_mixed and isinstance(self.accelerator, PretendAccelerator):
            return MixedPrecision(self._precision_flag, NAME)
        return super()._check_and_init_precision()


def register_accelerator() -> None:
    """Let Lightning train on the pretend device, which is registered if it is not yet."""
    register_device()
    if NAME not in AcceleratorRegistry:
        AcceleratorRegistry.register(NAME, PretendAccelerator, "a device to find mistakes with")
        trainer._AcceleratorConnector = Connector
