"""Lines that torch never traces, marked with why, and lines that it traces, marked with how often the program runs them."""

import torch  # import
from torch import nn  # import

GLOBAL = 1  # import
lam = lambda x: x.sin() + 1  # noqa: E731  # 1
table = {  # 2 lambdas
    "a": lambda x: x.cos(),  # 1
    "b": lambda x: x.tan(),  # 1
}
two = lambda x: x + 1, lambda x: x + 2  # 2 lambdas


class Net(nn.Module):  # import
    size = 3  # class Net
    scale = staticmethod(lambda x: x * 2)  # 1

    def forward(self, x):  # class Net
        global GLOBAL  # no code
        y: int  # no code
        if False:  # 1
            x = x + 1  # no code
        try:  # 1
            raise ValueError  # 1
        except KeyError:  # 1
            x = x + 1  # 0
        except ValueError:  # 1
            x = x + 2  # 1
        match x.dim():  # 1
            case 3:  # 1
                x = x + 3  # 0
            case 1:  # 1
                x = x + 1  # 1
        import math  # 1

        return self.scale(x) * math.pi  # 1
        x = x + 1  # no code


@torch.compiler.disable  # import
def off(x):  # import
    return x + 1  # disable was applied to off


class Plain:  # import
    @staticmethod  # class Plain
    @torch.compiler.disable  # class Plain
    def off(x):  # class Plain
        return x + 1  # disable was applied to Plain.off


def nested(x):  # import
    def inner(y):  # 1
        return y + 1  # 1

    return inner(x)  # 1
