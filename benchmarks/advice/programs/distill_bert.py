"""Distils a BERT into a smaller one; temperature and mixing weight are annealed by a scheduler object."""

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification


def bert(layers, hidden, seed):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=120,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=32,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    return BertForSequenceClassification(config)


class Schedule:
    """Cools the soft targets of the teacher and ends with hard labels."""

    def __init__(self):
        self.phase = "warmup"
        self.temperature = 4.0
        self.alpha = 0.9

    def step(self, number):
        self.temperature = max(1.0, self.temperature - 0.25)
        self.phase = ("warmup", "anneal", "finish")[min(number // 2, 2)]


class Distiller:
    def __init__(self, teacher, student):
        self.teacher = teacher.eval()
        self.student = student
        self.schedule = Schedule()

    def kd_loss(self, student_logits, teacher_logits):
        t = self.schedule.temperature
        soft = F.kl_div(F.log_softmax(student_logits / t, -1), F.softmax(teacher_logits / t, -1), reduction="batchmean")
        return t * t * soft

    @torch.compile(backend="eager")
    def loss(self, ids, mask, labels):
        with torch.no_grad():
            teacher_logits = self.teacher(input_ids=ids, attention_mask=mask).logits
        logits = self.student(input_ids=ids, attention_mask=mask).logits
        hard = F.cross_entropy(logits, labels)
        if self.schedule.phase == "finish":
            return hard
        alpha = self.schedule.alpha
        loss = alpha * self.kd_loss(logits, teacher_logits) + (1 - alpha) * hard
        if self.schedule.phase == "warmup":
            loss = loss + 0.1 * F.mse_loss(logits, teacher_logits)
        return loss


def main():
    distiller = Distiller(bert(2, 32, seed=0), bert(1, 16, seed=1))
    optimizer = torch.optim.AdamW(distiller.student.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(2)
    for number in range(6):
        ids = torch.randint(0, 120, (8, 12), generator=g)
        labels = ids.sum(1) % 3
        loss = distiller.loss(ids, torch.ones_like(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(number, distiller.schedule.phase, f"{loss.item():.3f}")
        distiller.schedule.step(number)
    distiller.student.eval()
    with torch.no_grad():
        ids = torch.randint(0, 120, (8, 12), generator=g)
        print(f"test loss {distiller.loss(ids, torch.ones_like(ids), ids.sum(1) % 3).item():.3f}")


if __name__ == "__main__":
    main()
