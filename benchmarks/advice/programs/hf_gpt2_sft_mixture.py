"""Fine-tune GPT-2 on a mixture of plain text and prompt/answer pairs."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

BLOCK = 16
IGNORE = -100


class PlainText(Dataset):
    def __init__(self, size, generator):
        self.rows = torch.randint(0, 120, (size, BLOCK), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "prompt_length": 0}


class Instructions(PlainText):
    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "prompt_length": 4 + index % 3}


def collate(rows):
    input_ids = torch.stack([row["input_ids"] for row in rows])
    lengths = torch.tensor([row["prompt_length"] for row in rows])
    if not lengths.any():
        return {"input_ids": input_ids, "labels": input_ids}
    labels = input_ids.clone()
    labels[torch.arange(BLOCK)[None] < lengths[:, None]] = IGNORE
    return {"input_ids": input_ids, "labels": labels}


def batches(generator):
    text = DataLoader(PlainText(8, generator), batch_size=4, collate_fn=collate)
    pairs = DataLoader(Instructions(8, generator), batch_size=4, collate_fn=collate)
    for plain, pair in zip(text, pairs):
        yield "text", plain
        yield "pairs", pair


def main():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=120, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = GPT2LMHeadModel(config)
    model.train()
    step = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for name, batch in batches(torch.Generator().manual_seed(1)):
        loss = step(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{name:5s} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
