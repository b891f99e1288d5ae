#!/usr/bin/env python3
"""Makes the fixtures of this folder with PyTorch, for tests/checkpoint.rs.  Needs torch==2.11.0 and numpy.

  make.py CASES    CASES is the folder of reference cases (tests/cases)

CASE_model_NAME.json   what torch.load finds in the case's checkpoint: for every tensor of the model and optimizer state its
                       type, shape and a sum weighted by position, which also tells permuted elements
types.pt               every kind of data and element type, views, shared storages, a Parameter
protocol4.pt           the same from a newer pickle protocol
legacy.pt              torch.save's format from before PyTorch 1.6
old_dingo.pt           a checkpoint as Dingo wrote them years ago: older names, numpy numbers, no iteration
"""
import json, os, sys
from collections import OrderedDict
import numpy as np, torch

here = os.path.dirname(os.path.abspath(__file__))


def describe(tensor):
    flat = tensor.double().flatten()
    weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64) / max(flat.numel(), 1)
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), float((flat * weights).sum())]


def expectations(path):
    d = torch.load(path, map_location="cpu", weights_only=True)
    optimizer = d["optimizer_state_dict"]
    return {
        "epoch": d["epoch"], "iteration": d["iteration"], "version": d["version"],
        "model_kwargs": d["model_kwargs"], "metadata": d["metadata"],
        "optimizer_kwargs": d["optimizer_kwargs"], "scheduler_kwargs": d["scheduler_kwargs"],
        "scheduler": d["scheduler_state_dict"], "param_groups": optimizer["param_groups"],
        "model": {name: describe(t) for name, t in d["model_state_dict"].items()},
        "optimizer": {str(i): {name: describe(t) for name, t in state.items()} for i, state in optimizer["state"].items()},
    }


def types():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = OrderedDict(
        base=base, transposed=base.t(), slice=base[1:3, 2::2], scalar=torch.tensor(1.5), empty=torch.zeros(0, 3),
        half=torch.tensor([0.5, -2.0]).half(), bfloat16=torch.tensor([0.5, -2.0]).bfloat16(), double=torch.tensor([1e300, float("nan")], dtype=torch.float64),
        int64=torch.tensor([-(2**62), 7]), int32=torch.tensor([-5, 6], dtype=torch.int32), int16=torch.tensor([-300, 300], dtype=torch.int16),
        int8=torch.tensor([-128, 127], dtype=torch.int8), uint8=torch.tensor([0, 255], dtype=torch.uint8), bool=torch.tensor([True, False, True]),
        parameter=torch.nn.Parameter(torch.ones(2)))
    plain = {
        "none": None, "true": True, "false": False, "ints": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 2**100],
        "floats": [0.0, -0.0, 1.0, 1e-320, float("inf"), -float("inf")], "text": "Überlichtgeschwindigkeit ∞", "bytes": bytes(range(256)),
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "empty": [[], {}, ""], 5: "int key", "size": torch.Size([2, 3]), "nested": {"a": [{"b": (None,)}]}}
    return {"tensors": tensors, "plain": plain}


def old_dingo():
    model = {"type": "nsf+embedding",
             "nsf_kwargs": {"input_dim": 2, "context_dim": 3, "num_flow_steps": 1, "base_transform_kwargs": {"hidden_dim": 4, "num_transform_blocks": 1, "activation": "elu", "dropout_probability": 0.0, "batch_norm": True, "num_bins": 8, "base_transform_type": "rq-coupling"}},
             "embedding_net_kwargs": {"input_dims": [1, 3, 5], "output_dim": 3, "hidden_dims": [4, 3], "activation": "elu", "dropout": 0.0, "batch_norm": True, "svd": {"size": 2}}}
    data = {"detectors": ["H1"], "standardization": {"mean": {"chirp_mass": np.float64(55.5), "mass_ratio": np.float32(0.5)}, "std": {"chirp_mass": np.float64(20.25), "mass_ratio": np.float32(0.25)}}}
    return {"model_kwargs": model, "model_state_dict": OrderedDict([("net.weight", torch.ones(2, 2)), ("net.bias", torch.zeros(2))]), "epoch": 300,
            "metadata": {"dataset_settings": {"num_samples": np.int64(5000000), "compression": None}, "train_settings": {"data": data, "model": model}}}


if __name__ == "__main__":
    for case, name in [("npe", "trained"), ("toy", "init")]:
        with open(f"{here}/{case}_model_{name}.json", "w") as f:
            json.dump(expectations(f"{sys.argv[1]}/{case}/model_{name}.pt"), f, separators=(",", ":"))
    torch.save(types(), f"{here}/types.pt")
    torch.save(types(), f"{here}/protocol4.pt", pickle_protocol=4)
    torch.save(old_dingo(), f"{here}/old_dingo.pt")
    torch.save(old_dingo(), f"{here}/legacy.pt", _use_new_zipfile_serialization=False)
