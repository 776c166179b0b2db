# SPDX-License-Identifier: MIT
"""Programs as they are, under `python -m gpushm.share`: the same answers, and one copy of the weights.

The ten programs are in programs/. four.py runs four processes of each at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
diffusers = pytest.importorskip("diffusers")
pytest.importorskip("accelerate")
pytest.importorskip("sentence_transformers")

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


def save_bert(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(1000))]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **size)).save_pretrained(folder)


def save_llama(folder: Path, adapter: Path) -> None:
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=1000, bos_token_id=1, eos_token_id=2, pad_token_id=0, **size)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"], init_lora_weights=False)
    peft.get_peft_model(model, lora).save_pretrained(adapter)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small models of float32, some 12 to 20 MB each."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    save_bert(folder / "bert")
    save_llama(folder / "llama", folder / "lora")
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    vit = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=10, **size)
    transformers.ViTForImageClassification(vit).save_pretrained(folder / "vit")
    diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(128, 256), layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).save_pretrained(folder / "unet")  # fmt: skip
    linear = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)])
    torch.save(linear.state_dict(), folder / "linear.pt")
    from safetensors.torch import save_file

    save_file(linear.state_dict(), folder / "linear.safetensors")
    return folder


def run(words: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def plain(models: Path) -> dict[str, Any]:
    """What the programs do without us."""
    return run([sys.executable, str(HERE / "four.py"), str(models), *map(str, PROGRAMS)])


@pytest.fixture(scope="session")
def shared(models: Path) -> dict[str, Any]:
    """What they do with `python -m gpushm.share --` before them."""
    words = [sys.executable, str(HERE / "four.py"), str(models), *map(str, PROGRAMS)]
    return run([sys.executable, "-m", "gpushm.share", "--", *words])


def test_there_are_ten_programs() -> None:
    assert len(PROGRAMS) == 10
    assert not any("gpushm" in program.read_text() for program in PROGRAMS)


@pytest.mark.parametrize("program", [p.stem for p in PROGRAMS])
def test_a_program_answers_the_same_with_one_copy_of_its_weights(
    program: str, plain: dict[str, Any], shared: dict[str, Any]
) -> None:
    before, after = plain[program], shared[program]
    assert all(answer == before["answers"][0] for answer in before["answers"] + after["answers"])
    copies = [(found["own"] + sum(found["buffers"].values())) / found["model"] for found in (before, after)]
    print(f"{program}: {before['model'] >> 10} KiB; copies: plain {copies[0]:.2f}, shared {copies[1]:.2f}")
    assert copies[1] <= 1.05, (after["own"], after["buffers"], after["said"])
    assert copies[0] >= 3.9
    assert not any(after["said"]), after["said"]
