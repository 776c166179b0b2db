# SPDX-License-Identifier: MIT
"""What the pages show runs as a reader would paste it, and says what they say.

tests/wheel.sh, tests/bare_root.sh and tests/image.sh run the installation, models/test_documents.py what needs PyTorch.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import gpushm
import pytest

from daemon import BUILD

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "client/python/README.md", "client/python/RULES.md", "client/lib/stream/README.md"]
# With a folder of its own in the place of /tmp, and without what installs.
NOT_RUN = re.compile(r"^(make|pip install|python3 -m venv) .*$", re.MULTILINE)
LINKED = f"-I{ROOT}/client -Wall -Wextra -Werror -L{BUILD} -Wl,-rpath,{BUILD} -lgpushm"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page, in its order; not those that say what they need."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if not block.startswith("# needs: ")]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """All of its pieces, one behind the other, in one process."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert gpushm.ls() == []


def run_shell(text: str, folder: Path) -> str:
    """What it prints. The shell has jobs, as one that a person types into; what it has started ends with it."""
    env = os.environ | {"PATH": f"{BUILD}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if "gpushmd --socket" in text:
        env["FAKECUDA_STATE"] = f"{folder}/gpu"
    text = text.replace("/tmp/", f"{folder}/").replace("$(pkg-config --cflags --libs gpushm)", LINKED)
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, errors = shell.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    assert shell.returncode == 0, said + errors
    return said


@pytest.mark.skipif(which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")])
def test_the_shell_and_the_c_of_a_page_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "first/bin").mkdir(parents=True)
    (tmp_path / "first/bin/activate").touch()
    for block in blocks(page, "c"):
        name = re.match(r"/\* (\w+\.c) \*/", block)
        assert name is not None, block
        (tmp_path / name[1]).write_text(block)
    for block in blocks(page, "sh"):
        said = run_shell(NOT_RUN.sub(":", block) + "wait || true\n", tmp_path)
        _, _, behind = (ROOT / page).read_text().partition(f"```sh\n{block}```\n\n```text\n")
        assert behind.partition("```\n")[0] in said


def test_the_first_example_of_gpushmctl_runs(tmp_path: Path) -> None:
    page = (ROOT / "man/gpushmctl.1").read_text().partition(".Sh EXAMPLES\n")[2]
    example = page.partition(".Bd -literal -offset indent\n")[2].partition(".Ed\n")[0].replace(r"\e", "\\")
    for file in (ROOT / "tests/data").glob("*.npy"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    said = run_shell(example + "wait || true\ngpushmctl rm llm\n", tmp_path)
    assert "digits/model" in said and (tmp_path / "b2-again.npy").read_bytes() == (tmp_path / "b2.npy").read_bytes()


# ---- coming from another library ----

NUMBA = "import numpy as np\nfrom numba import cuda\nimport gpushm.numba\n"
OTHER = """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", other], check=True, capture_output=True, text=True).stdout)
gpushm.unlink(name)
"""
READS = 'name, other = "name", "import gpushm; assert sum(gpushm.open(\'name\').tolist()) == 66"\n'

# What a row writes: the modules that it needs, and the program around its code. "" is a program of its own.
ROWS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "NUMBA_CUDA_MEMORY_MANAGER=gpushm.numba python program.py": (
        ("numba.cuda",),
        "",
        NUMBA + "d = cuda.to_device(np.arange(12.0))\nassert d.copy_to_host().sum() == 66 and gpushm.ls()\ndel d\n",
    ),
    'gpushm.numba.publish(array, "name")': (
        ("numba.cuda",),
        NUMBA + "cuda.set_memory_manager(gpushm.numba.MemoryManager)\narray = cuda.to_device(np.arange(12.0))\n",
        READS + OTHER,
    ),
    "from gpushm import numba as cuda": (
        (),
        "import numpy as np\n",
        "d = cuda.to_device(np.arange(12.0))\nassert d.copy_to_host().sum() == 66\ndel d\n",
    ),
    "from gpushm.cuda_core import DeviceMemoryResource, DeviceMemoryResourceOptions": (
        ("cuda.core", "gpushm.cuda_core"),
        "import gpushm\nfrom cuda.core import Device\ndevice = Device(0)\ndevice.set_current()\n",
        "mr = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions(max_size=1 << 20, ipc_enabled=True))\n"
        "buffer = mr.allocate(4096, stream=device.default_stream)\nassert mr.is_ipc_enabled and buffer.size == 4096\n"
        "buffer.close()\nmr.close()\n",
    ),
    'cupy.cuda.set_allocator(gpushm.cupy.Allocator(pool="gpu0"))': (
        ("cupy", "gpushm.cupy"),
        "import cupy\nimport gpushm.cupy\n",
        "x = cupy.arange(12.0)\nassert float(x.sum()) == 66 and gpushm.ls()\n",
    ),
    'gpushm.cupy.publish(array, "name")': (
        ("cupy", "gpushm.cupy"),
        "import cupy\nimport gpushm.cupy\n"
        "cupy.cuda.set_allocator(gpushm.cupy.Allocator())\narray = cupy.arange(12.0)\n",
        READS + OTHER,
    ),
    'model = gpushm.torch.share("llama", build)': (
        ("torch",),
        "import gpushm.torch\nimport torch\nbuild = lambda: torch.nn.Linear(4, 4).eval()\n",
        "assert model(torch.ones(4)).equal(gpushm.torch.share('llama', build)(torch.ones(4)))\n"
        "gpushm.unlink('llama')\n",
    ),
    "python -m gpushm.share -- python program.py": (
        ("torch", "safetensors"),
        "",
        "import torch\nfrom safetensors.torch import load_model, save_model\nfrom pathlib import Path\n"
        "save_model(torch.nn.Linear(4, 4), 'a')\nmodel = torch.nn.Linear(4, 4)\nload_model(model, 'a')\n"
        "import gpushm\nassert sum('/share/Linear' in b.name for b in gpushm.ls()) == 1\n",
    ),
    'gpushm.torch.publish("batch", {"x": tensor})': (
        ("torch",),
        "import gpushm.torch\nimport torch\ntensor = torch.arange(12.0)\n",
        "name, other = \"batch\", \"import gpushm.torch; assert gpushm.torch.open('batch')['x'].sum() == 66\"\n"
        + OTHER,
    ),
}


def rows() -> Iterator[str]:
    """The code of each row of the first page's table."""
    table = (ROOT / "README.md").read_text().partition("\n## Coming from another library\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| [A-Z\w][^|]* \| `(.*?)` \|", table, re.MULTILINE):
        yield str(row)


def test_each_row_for_other_libraries_has_its_program() -> None:
    assert list(rows()) == list(ROWS)


def has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def is_fake_driver() -> bool:
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_handed_out")
    except OSError:
        return False


@pytest.mark.parametrize("code", ROWS)
def test_a_row_for_another_library_runs(code: str, tmp_path: Path) -> None:
    needs, before, after = ROWS[code]
    for module in needs:
        if not has(module):
            pytest.skip(f"no {module}")
    if set(needs) & {"numba.cuda", "cuda.core", "cupy"} and not any(p.kind == "vmm" for p in gpushm.pools()):
        pytest.skip("no GPU")
    if "cupy" in needs and is_fake_driver():
        pytest.skip("CUDA's runtime, which CuPy uses, needs a real driver")
    program = tmp_path / "program.py"
    program.write_text(f"{before}{code}\n{after}" if before else after)
    command = code if not before else "python program.py"
    run_shell(command, tmp_path)
    assert gpushm.ls() == []


def test_the_python_page_has_the_rows_of_the_first_one() -> None:
    page = (ROOT / "client/python/README.md").read_text()
    assert [code for code in rows() if code.removesuffix(" python program.py") not in page] == []
