"""Streams tokens of an OPT model to clients: each request runs in its own context, which holds the client's stream."""

import contextvars
import queue

import torch
from transformers import OPTConfig, OPTForCausalLM

WINDOW = 10
STREAM = contextvars.ContextVar("STREAM")


class TokenStream:
    """What the HTTP handler iterates over to write server-sent events."""

    def __init__(self, client):
        self.client = client
        self.events = queue.SimpleQueue()

    def drain(self):
        while not self.events.empty():
            yield self.events.get()


class StreamingGenerator:
    def __init__(self, model, new_tokens):
        self.model = model
        self.new_tokens = new_tokens

    @torch.compile(backend="eager")
    def decode_step(self, window):
        logits = self.model(input_ids=window, use_cache=False).logits[:, -1]
        probs = torch.softmax(logits.float(), dim=-1)
        confidence, token = probs.max(dim=-1)
        stream = STREAM.get()
        stream.events.put((token, confidence))
        shifted = torch.cat([window[:, 1:], token[:, None]], dim=1)
        return shifted

    @torch.no_grad()
    def generate(self, prompt):
        window = torch.tensor([[1] * (WINDOW - len(prompt)) + prompt])
        for _ in range(self.new_tokens):
            window = self.decode_step(window)
        return window


def handle(generator, stream, prompt):
    STREAM.set(stream)
    generator.generate(prompt)


def main():
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=80,
        hidden_size=32,
        word_embed_proj_dim=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=32,
    )
    generator = StreamingGenerator(OPTForCausalLM(config).eval(), new_tokens=4)
    for client, prompt in (("alice", [4, 8, 15]), ("bob", [16, 23, 42, 5]), ("carol", [7])):
        stream = TokenStream(client)
        contextvars.copy_context().run(handle, generator, stream, prompt)
        events = [f"{token.item()}:{confidence.item():.4f}" for token, confidence in stream.drain()]
        print(client, " ".join(events))


if __name__ == "__main__":
    main()
