# SPDX-License-Identifier: MIT
"""Eight processes generate text with one model of transformers, which is in memory once.

python generate.py [LAYERS] [HIDDEN]  makes Llama's shape with random weights; a real program has from_pretrained() in
load(), and AutoConfig.from_pretrained() in build().
"""

import multiprocessing as mp
import sys
import time

import gpushm.torch
import torch
from transformers import AutoModelForCausalLM, LlamaConfig


def build(layers, hidden):
    config = LlamaConfig(hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers, vocab_size=1000,
                         num_attention_heads=8, num_key_value_heads=4, pad_token_id=0)  # fmt: skip
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def load(*shape):
    torch.manual_seed(0)
    return build(*shape).to("cuda" if torch.cuda.is_available() else "cpu")


def generate(shape, prompt):
    start = time.monotonic()
    model = gpushm.torch.attach("generate", lambda: build(*shape), timeout=120)
    attached = time.monotonic() - start
    tokens = torch.tensor([[1, 5, prompt]], device=model.device)
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False)
    return out[0].tolist(), attached, gpushm.stat("generate").readers


if __name__ == "__main__":
    shape = [int(n) for n in sys.argv[1:3]] or [4, 256]
    model = load(*shape)
    gpushm.torch.publish("generate", model)
    model = gpushm.torch.attach("generate", lambda: build(*shape))  # its own copy is not needed any more
    with mp.get_context("spawn").Pool(8) as workers:
        results = workers.starmap(generate, [(shape, prompt % 4) for prompt in range(8)], chunksize=1)
    for i, (text, _, _) in enumerate(results[:4]):
        assert text == results[i + 4][0], "two processes continue one prompt in two ways"
    info = gpushm.stat("generate")
    print(f"{max(readers for *_, readers in results)} processes share {info.nbytes >> 20} MiB in {info.arrays} tensors")
    print(f"making the module and attaching took {1000 * min(took for _, took, _ in results):.0f} ms")
    gpushm.unlink("generate")
