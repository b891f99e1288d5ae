"""What Dingo makes of a checkpoint.

  check_with_dingo.py MODEL.pt                 opens it as data only, then with Dingo's own loader
  check_with_dingo.py MODEL.pt --inputs NPZ    also prints the mean loss in evaluation mode on the arrays in_0, in_1, ...
  check_with_dingo.py MODEL.pt --resume DIR    also lets dingo_train go on from it in DIR, which has a local_settings.yaml
"""

import argparse
import os
import subprocess
import sys

import numpy as np
import torch
from dingo.core.posterior_models.build_model import build_model_from_kwargs


def evaluation_loss(model, path):
    arrays = np.load(path)
    count = sum(name.startswith("in_") for name in arrays.files)
    inputs = [torch.from_numpy(arrays[f"in_{i}"]) for i in range(count)]
    model.network.eval()
    with torch.no_grad():
        return float(model.loss(*inputs))


def train_on(checkpoint, folder):
    dingo_train = os.path.join(os.path.dirname(sys.executable), "dingo_train")
    subprocess.run([dingo_train, "--checkpoint", checkpoint, "--train_dir", folder], check=True)
    return os.path.join(folder, "model_latest.pt")


def epochs(path):
    return torch.load(path, map_location="cpu", weights_only=True)["epoch"]


parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--inputs")
parser.add_argument("--resume")
arguments = parser.parse_args()

before = epochs(arguments.model)
model = build_model_from_kwargs(filename=arguments.model, device="cpu")
if arguments.inputs:
    print(f"eval loss: {evaluation_loss(model, arguments.inputs)!r}")
if arguments.resume:
    after = epochs(train_on(arguments.model, arguments.resume))
    print(f"epochs trained by Dingo: {after - before}", flush=True)
