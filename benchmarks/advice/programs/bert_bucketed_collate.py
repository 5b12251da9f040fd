"""Fine-tunes a tiny BERT sentence classifier with a padding collator of its own."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification


class Sentences(Dataset):
    def __init__(self, count, vocab, seed):
        generator = torch.Generator().manual_seed(seed)
        self.items = []
        for index in range(count):
            length = 12 if index % 16 < 8 else int(torch.randint(6, 13, (1,), generator=generator))
            ids = torch.randint(5, vocab, (length,), generator=generator)
            self.items.append({"input_ids": ids, "label": int(ids[0] > vocab // 2)})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class BucketCollator:
    def __init__(self, max_length=12, pad_token_id=0):
        self.max_length, self.pad_token_id = max_length, pad_token_id

    def __call__(self, features):
        lengths = [len(f["input_ids"]) for f in features]
        input_ids = torch.full((len(features), self.max_length), self.pad_token_id)
        for row, feature in enumerate(features):
            input_ids[row, : lengths[row]] = feature["input_ids"]
        batch = {"input_ids": input_ids, "labels": torch.tensor([f["label"] for f in features])}
        if min(lengths) < self.max_length:
            batch["attention_mask"] = (torch.arange(self.max_length) < torch.tensor(lengths)[:, None]).long()
        return batch


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        num_labels=2, problem_type="single_label_classification",
    )
    model = BertForSequenceClassification(config)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(Sentences(44, 64, seed=1), batch_size=8, collate_fn=BucketCollator())
    for epoch in range(2):
        total = 0.0
        for batch in loader:
            loss = compiled(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
