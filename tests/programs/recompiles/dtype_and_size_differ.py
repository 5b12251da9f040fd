"""First the dtype of the signal changes and later its length, each at the cost of one recompile."""
import torch


class Detrend:
    def __init__(self, order):
        self.order = order

    @torch.compile(backend="eager")
    def apply(self, signal):
        slope = signal[-1] - signal[0]  # DX102, DX105
        ramp = torch.ones_like(signal).cumsum(0)
        return signal - slope * ramp


torch.manual_seed(0)
detrend = Detrend(1)
detrend.apply(torch.randn(16))
detrend.apply(torch.randn(16, dtype=torch.float64))
detrend.apply(torch.randn(20, dtype=torch.float64))
