"""The sequence length differs per call, but it is marked with mark_dynamic before the first call."""
import torch
import torch.nn.functional as F


@torch.compile(backend="eager")
def score(keys, query):
    scores = keys.mv(query)
    return F.softmax(scores, dim=0)


torch.manual_seed(0)
query = torch.randn(6)
for length in (4, 7, 9, 11):
    keys = torch.randn(length, 6)
    torch._dynamo.mark_dynamic(keys, 0)
    score(keys, query)
