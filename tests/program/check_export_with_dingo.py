"""Whether an exported HDF5 model is what Dingo's own tool makes of the checkpoint, and opens in Dingo.

  check_export_with_dingo.py CHECKPOINT.pt EXPORTED_v3.hdf5 FOLDER INPUTS.npz
"""

import json
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
from dingo.core.posterior_models.normalizing_flow import NormalizingFlowPosteriorModel

checkpoint, exported, folder, inputs = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
tool = os.path.join(os.path.dirname(sys.executable), "dingo_pt_to_hdf5")
wanted = os.path.join(folder, "model.hdf5")
subprocess.run([tool, "-i", checkpoint, "-o", wanted, "-n", "3"], check=True)
wanted = wanted.replace(".hdf5", "_v3.hdf5")


def contents(path):
    with h5py.File(path) as file:
        weights = {name: array[()] for name, array in file["model_weights"].items()}
        sums = {name: array.fletcher32 for name, array in file["model_weights"].items()}
        dicts = {name: json.loads(text[()]) for name, text in file["serialized_dicts"].items()}
        return dict(file.attrs), dicts, weights, sums


ours, dingos = contents(exported), contents(wanted)
assert ours[0] == dingos[0], (ours[0], dingos[0])
assert ours[1] == dingos[1]
assert ours[3] == dingos[3]
assert list(ours[2]) == list(dingos[2])
for name, array in dingos[2].items():
    assert ours[2][name].dtype == array.dtype and np.array_equal(ours[2][name], array), name


def loss(path):
    model = NormalizingFlowPosteriorModel(model_filename=path, device="cpu", load_training_info=False)
    arrays = np.load(inputs)
    count = sum(name.startswith("in_") for name in arrays.files)
    with torch.no_grad():
        return float(model.loss(*[torch.from_numpy(arrays[f"in_{i}"]) for i in range(count)]))


assert loss(exported) == loss(checkpoint)
print("the same as Dingo's", flush=True)
