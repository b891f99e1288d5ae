"""Writes optimizers.yaml and schedulers.yaml beside this file: what torch 2.11.0 does with given gradients and losses.

Floats are written by repr, so that nothing is lost; PyTorch's order of keys is kept.
"""

import json
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
SHAPES = [(2, 3), (4,), (3,), ()]
STEPS, MIDDLE = 8, 4
FROZEN = 1  # always
THAWED, THAW_STEP = 2, 3  # frozen before this step

OPTIMIZERS = {
    "adam": ("Adam", [{}, {"betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.1}, {"amsgrad": True}]),
    "adamw": ("AdamW", [{}, {"amsgrad": True, "weight_decay": 0.3}, {"weight_decay": 0.0}]),
    "sgd": (
        "SGD",
        [
            {},
            {"momentum": 0.9},
            {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        ],
    ),
    "rmsprop": (
        "RMSprop",
        [{}, {"alpha": 0.8, "momentum": 0.9}, {"centered": True, "weight_decay": 0.1, "eps": 1e-5}, {"centered": True, "momentum": 0.9}],
    ),
    "adagrad": ("Adagrad", [{}, {"lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-6}]),
}

SCHEDULERS = {
    "step": ("StepLR", [{"step_size": 3}, {"step_size": 1, "gamma": 0.9}]),
    "cosine": ("CosineAnnealingLR", [{"T_max": 5}, {"T_max": 7, "eta_min": 1e-4}, {"T_max": 2.5}, {"T_max": 1}]),
    "reduce_on_plateau": (
        "ReduceLROnPlateau",
        [
            {},
            {"factor": 0.5, "patience": 1},
            {"factor": 0.3, "patience": 0, "cooldown": 2, "min_lr": 2e-4},
            {"factor": 0.5, "patience": 1, "threshold": 0.3, "threshold_mode": "abs"},
            {"factor": 0.5, "patience": 1, "mode": "max", "threshold": 0.05},
            {"factor": 0.5, "patience": 1, "mode": "max", "threshold": 0.3, "threshold_mode": "abs"},
            {"factor": 0.9, "patience": 0, "eps": 1e-4},
        ],
    ),
}
LOSSES = [5.0, 4.0, 4.1, 3.9, 3.95, float("nan"), 3.8, 3.9, 4.5, 4.6, 3.7, 3.7, 3.6999, 3.2, 3.3, 3.3, 3.3, 6.0, 2.0, 2.1]


def plain(value):
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": value.double().flatten().tolist()}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def write(name, value):
    text = json.dumps(value)  # JSON is YAML but for the names of these:
    text = text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    (HERE / name).write_text(text.replace('{"type"', '\n{"type"') + "\n")


def optimizer_case(type_, name, kwargs, initial, gradients, scheduled):
    parameters = [torch.nn.Parameter(value.clone()) for value in initial]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **kwargs)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5) if scheduled else None
    case = {"type": type_, "kwargs": {"lr": 0.01, **kwargs}, "scheduled": scheduled}
    for step in range(STEPS):
        if step == MIDDLE:
            case["middle"] = plain([parameter.detach() for parameter in parameters])
            case["middle_state"] = plain(optimizer.state_dict())
        for index, (parameter, gradient) in enumerate(zip(parameters, gradients[step])):
            frozen = index == FROZEN or (index == THAWED and step < THAW_STEP)
            parameter.grad = None if frozen else gradient.clone()
        optimizer.step()
        if scheduled:
            scheduler.step()
    case["final"] = plain([parameter.detach() for parameter in parameters])
    case["final_state"] = plain(optimizer.state_dict())
    return case


def scheduler_case(type_, name, kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1e-3)
    scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **kwargs)
    case = {"type": type_, "kwargs": kwargs, "states": [plain(scheduler.state_dict())], "lrs": []}
    for loss in LOSSES:
        optimizer.step()
        scheduler.step(loss) if type_ == "reduce_on_plateau" else scheduler.step()
        case["lrs"].append(optimizer.param_groups[0]["lr"])
        case["states"].append(plain(scheduler.state_dict()))
    case["initial_lr"] = optimizer.param_groups[0].get("initial_lr")
    return case


torch.manual_seed(1)
initial = [torch.randn(shape) for shape in SHAPES]
scales = [1.0, 1.0, 1e-3, 100.0]
gradients = [[scale * torch.randn(shape) for scale, shape in zip(scales, SHAPES)] for _ in range(STEPS)]
cases = [
    optimizer_case(type_, name, kwargs, initial, gradients, scheduled=index != 1)
    for type_, (name, options) in OPTIMIZERS.items()
    for index, kwargs in enumerate(options)
]
write(
    "optimizers.yaml",
    {
        "initial": plain(initial),
        "gradients": plain(gradients),
        "frozen": FROZEN,
        "thawed": THAWED,
        "thaw_step": THAW_STEP,
        "middle": MIDDLE,
        "cases": cases,
    },
)
write(
    "schedulers.yaml",
    {
        "losses": LOSSES,
        "cases": [scheduler_case(type_, name, kwargs) for type_, (name, options) in SCHEDULERS.items() for kwargs in options],
    },
)
