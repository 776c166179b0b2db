# SPDX-License-Identifier: MIT
"""Attaches a model of transformers with random weights, beside what transformers itself takes.

    BUILD=build PYTHONPATH=build/python build/venv-torch/bin/python tests/bench/models_attach.py

A model of Llama's shape is saved in a folder and loaded once; then all ways run by turns in this process, N rounds. It
starts a daemon of its own from $BUILD, whose Python package is on PYTHONPATH. "CPU" is the CPU time of the process:
these calls wait for nothing, so that on a busy machine it says more than the time by the clock.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time

WAYS = {
    "plain": "transformers' from_pretrained()",
    "shared": "gpushm.transformers.from_pretrained()",
    "built": "the module alone, on the meta device",
    "empty": "the same without its initialisation",
    "attach": "gpushm.torch.attach() to a module that is built",
}


@contextlib.contextmanager
def no_initialisation():
    """Constructors of modules leave their parameters as they are."""
    import torch.nn.init as init

    before = {name: getattr(init, name) for name in ("kaiming_uniform_", "normal_", "ones_", "uniform_", "zeros_")}
    for name in before:
        setattr(init, name, lambda tensor, *_, **__: tensor)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(init, name, function)


def make(folder, layers, hidden):
    """Saves a model with 9 tensors a layer and 3 more; returns its configuration."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=False, pad_token_id=0)  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return config, len(model.state_dict())


def calls(folder, config, device):
    """What each way calls."""
    import gpushm.torch
    import gpushm.transformers
    import torch
    import transformers

    def build():
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)

    def empty():
        with no_initialisation():
            return build()

    where = {"device_map": {"": device}}
    # transformers makes the buffers that the file does not have; attach() takes them from the module.
    module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return {
        "plain": lambda: transformers.AutoModelForCausalLM.from_pretrained(folder, **where),
        "shared": lambda: gpushm.transformers.from_pretrained(folder, name="bench", **where),
        "built": build,
        "empty": empty,
        "attach": lambda: gpushm.torch.attach("bench", module),
    }


def measure(found, rounds):
    """The seconds and the CPU seconds of each round, by way, after one round that is not counted."""
    taken = {way: ([], []) for way in found}
    for i in range(rounds + 1):
        for way, call in found.items():
            start, cpu = time.perf_counter(), time.process_time()
            made = call()
            end, cpu_end = time.perf_counter(), time.process_time()
            if i > 0:
                taken[way][0].append(end - start)
                taken[way][1].append(cpu_end - cpu)
            del made
    return taken


def report(taken, tensors, where, path):
    """Prints a row for each way, and appends them to a file for plots."""
    floor = statistics.median(taken["empty"][1])
    rows = []
    for way, (seconds, cpu) in taken.items():
        median, least = statistics.median(seconds), min(seconds)
        ratio = statistics.median(cpu) / floor
        print(f"{WAYS[way]:50} {1e3 * median:7.1f} ms (least {1e3 * least:6.1f}); CPU {1e3 * statistics.median(cpu):7.1f} ms, "
              f"{ratio:5.2f} of the empty module", flush=True)
        rows.append({"row": f"model_{way}", "what": WAYS[way], "tensors": tensors, "where": where, "median_ms": 1e3 * median,
                     "least_ms": 1e3 * least, "cpu_ms": 1e3 * statistics.median(cpu), "of_empty": ratio})
    if path:
        with open(path, "a", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=50)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        import torch
        import transformers
        import gpushm
    except ImportError as error:
        print(f"a model of transformers is left out: {error}")
        return
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
    from daemon import Daemon

    transformers.utils.logging.disable_progress_bar()
    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    with tempfile.TemporaryDirectory() as folder:
        config, tensors = make(folder, args.layers, args.hidden)
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
        where = torch.cuda.get_device_name(0) if device != "cpu" else "host pool"
        print(f"{tensors} tensors, {where}, medians of {args.rounds} rounds by turns; PyTorch {torch.__version__}, "
              f"transformers {transformers.__version__}")
        report(measure(calls(folder, config, device), args.rounds), tensors, where, args.json)
    gpushm.unlink("bench")
    daemon.remove()


if __name__ == "__main__":
    main()
