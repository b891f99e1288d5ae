#!/usr/bin/env python3
"""Opens a checkpoint that we wrote with PyTorch and Dingo, and compares it with the one of Dingo's that it was read from.

  compare.py ORIGINAL COPY

Needs dingo-gw==0.10.3.  Exit status 0 only if nothing differs but what is ours.
"""
import sys
import torch


def compare(path, a, b):
    assert type(a) is type(b), f"{path}: {type(a)} became {type(b)}"
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b), path
    elif isinstance(a, dict):
        assert list(a) == list(b), f"{path}: {list(a)} became {list(b)}"
        for key in a:
            compare(f"{path}.{key}", a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, pair in enumerate(zip(a, b)):
            compare(f"{path}.{i}", *pair)
    else:
        assert a == b, f"{path}: {a} became {b}"


original, copy = (torch.load(path, map_location="cpu", weights_only=True) for path in sys.argv[1:])
print("ours:", copy.pop("spmd"))
compare("", original, copy)
mapped = torch.load(sys.argv[2], map_location="cpu", weights_only=True, mmap=True)
compare(".model_state_dict", original["model_state_dict"], mapped["model_state_dict"])

from dingo.core.posterior_models.build_model import build_model_from_kwargs
model = build_model_from_kwargs(filename=sys.argv[2], device="cpu")
compare(".network", original["model_state_dict"], model.network.state_dict())
compare(".optimizer", original["optimizer_state_dict"], model.optimizer.state_dict())
compare(".scheduler", original["scheduler_state_dict"], model.scheduler.state_dict())
