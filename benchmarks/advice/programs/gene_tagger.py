"""Tags coding regions of DNA reads: k-mer encoding, a GRU and a linear head, scored per chromosome."""

import torch
import torch.nn as nn

READS = {
    "chr1": ["ACGTACGTTGCA", "TTGACCAGTACC", "GGGATTACAGGT"],
    "chr2": ["ACGTTTGACACGTA", "CCATGGTTAACCGG"],
    "chrX": ["ATATATGCGCGCTTAA", "GATTACAGATTACAGA", "CCCGGGAAATTTACGT"],
}
BASES = {"A": 0, "C": 1, "G": 2, "T": 3}


def complement(ids):
    return 3 - ids.flip(-1)


class Tagger(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 2)

    def forward(self, ids):
        pairs = ids[:, :-1] * 4 + ids[:, 1:]
        x = self.embed(pairs)
        x, _ = self.gru(x)
        return self.head(torch.tanh(x)).log_softmax(-1)


def encode(reads):
    return torch.tensor([[BASES[base] for base in read] for read in reads])


@torch.no_grad()
def annotate(model, chromosome):
    ids = encode(READS[chromosome])
    both = model(ids) + model(complement(ids)).flip(1)
    coding = both.argmax(-1)
    return coding.sum(-1).tolist(), both.amax(-1).mean().item()


def main():
    torch.manual_seed(11)
    tagger = Tagger().eval()
    model = torch.compile(tagger, backend="eager", dynamic=False)
    for chromosome in READS:
        coding, score = annotate(model, chromosome)
        print(chromosome, coding, round(score, 3))


if __name__ == "__main__":
    main()
