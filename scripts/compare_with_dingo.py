"""The measurement of compare_with_dingo.sh, which see. Runs in Dingo's environment."""

import argparse
import copy
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/dingo-spmd"

# Dingo's own entry point.
DINGO = "import sys; from dingo.gw.training import train_local; sys.argv[0] = 'dingo_train'; train_local()"
# The setting of Dingo's under which PyTorch gives products of single precision to oneDNN. Where the processor multiplies bf16,
# it may do so; elsewhere the results are those of single precision.
ONEDNN = "medium"


@dataclass
class Contender:
    name: str
    what: str
    frozen: bool
    is_dingo: bool = False
    matmul_precision: str | None = None
    mixed_precision: bool = False
    ranks: int = 1


CONTENDERS = [
    Contender("dingo", "Dingo as shipped, first layer frozen", True, is_dingo=True),
    Contender("dingo-trained", "Dingo as shipped, first layer trained", False, is_dingo=True),
    Contender("dingo-onednn", "Dingo with oneDNN's products, frozen", True, is_dingo=True, matmul_precision=ONEDNN),
    Contender("dingo-onednn-trained", "Dingo with oneDNN's products, trained", False, is_dingo=True, matmul_precision=ONEDNN),
    Contender("ours", "dingo-spmd, frozen", True),
    Contender("ours-trained", "dingo-spmd, trained", False),
    Contender("ours-amp", "dingo-spmd, frozen, mixed precision", True, mixed_precision=True),
    Contender("ours-two-ranks", "dingo-spmd, frozen, two ranks", True, ranks=2),
]

# What is divided by what, and how much it should be at least.
GOALS = [
    ("ours", "dingo", 4.0),
    ("ours-trained", "dingo-trained", 4.0),
    ("ours", "dingo-onednn", 2.5),
    ("ours-trained", "dingo-onednn-trained", 2.5),
    ("ours-amp", "dingo", 6.0),
    ("ours-two-ranks", "ours", 0.9),
]


def arguments():
    parser = argparse.ArgumentParser(prog="compare_with_dingo.sh")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--epochs", type=int, default=4, help="of each run; the first does not count")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each contender")
    parser.add_argument("--cores", type=int, default=2)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", default=",".join(names), help="contenders, of " + ", ".join(names))
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    if chosen.epochs < 2 or chosen.repeats < 1:
        parser.error("at least 2 epochs and 1 repeat are needed")
    if unknown := set(chosen.only) - set(names):
        parser.error(f"there is no contender {', '.join(unknown)}; there are {', '.join(names)}")
    available = sorted(os.sched_getaffinity(0))
    if not 0 < chosen.cores <= len(available):
        parser.error(f"{chosen.cores} cores, but this machine lets us use {len(available)}")
    chosen.cores = available[: chosen.cores]
    return chosen


def first_stage(settings_file, epochs):
    """The settings with the first stage alone, and with paths that hold everywhere."""
    settings = yaml.safe_load(settings_file.read_text())
    stage = settings["training"]["stage_0"]
    settings["training"] = {"stage_0": stage}
    stage["epochs"] = epochs
    if stage.get("scheduler", {}).get("type") == "cosine":
        stage["scheduler"]["T_max"] = epochs
    settings["local"]["device"] = "cpu"

    def absolute(path):
        """Relative to the working directory, as in Dingo, or else to the settings' folder."""
        places = [Path(path), settings_file.parent / path]
        return str(next((place for place in places if place.exists()), places[0]).resolve())

    settings["data"]["waveform_dataset_path"] = absolute(settings["data"]["waveform_dataset_path"])
    stage["asd_dataset_path"] = absolute(stage["asd_dataset_path"])
    return settings


def command(contender, settings_file, train_dir):
    train = ["--settings_file", str(settings_file), "--train_dir", str(train_dir)]
    if contender.is_dingo:
        return [sys.executable, "-c", DINGO, *train]
    ranks = [str(ROOT / "scripts/mpirun.sh"), str(contender.ranks)] if contender.ranks > 1 else []
    return [*ranks, str(PROGRAM), *train]


def speeds(contender, settings, cores):
    """Samples per second of the training part of each epoch after the first."""
    settings = copy.deepcopy(settings)
    stage = settings["training"]["stage_0"]
    stage["freeze_rb_layer"] = contender.frozen
    stage["automatic_mixed_precision"] = contender.mixed_precision
    settings["local"].pop("float32_matmul_precision", None)
    if contender.matmul_precision:
        settings["local"]["float32_matmul_precision"] = contender.matmul_precision
    threads = str(max(1, len(cores) // contender.ranks))
    environment = dict(os.environ, PYTHONUNBUFFERED="1", OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    with tempfile.TemporaryDirectory() as folder:
        settings_file = Path(folder) / "settings.yaml"
        settings_file.write_text(yaml.safe_dump(settings, sort_keys=False))
        process = subprocess.Popen(
            command(contender, settings_file, Path(folder) / "run"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            start_new_session=True,
        )
        try:
            found, log = listen(process.stdout)
            if process.wait() != 0 or len(found) < 2:
                sys.exit("".join(log[-30:]) + f"\ncompare: {contender.what}: the training failed")
        finally:
            # Whatever is left of it, its data processes included.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return found[1:]


def listen(output):
    """Samples per second of the training part of each epoch, and all that was said."""
    found, log = [], []
    start = samples = None
    for line in output:
        log.append(line)
        if line.startswith("Start training epoch"):
            start = time.monotonic()
        elif match := re.match(r"Train Epoch: \d+ \[\d+/(\d+)", line):
            samples = int(match.group(1))
        elif line.startswith("Start testing epoch") and start and samples:
            found.append(samples / (time.monotonic() - start))
    return found, log


def main():
    # So that what was started is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = arguments()
    settings = first_stage(chosen.settings, chosen.epochs)
    contenders = [contender for contender in CONTENDERS if contender.name in chosen.only]
    measured = {contender.name: [] for contender in contenders}
    for repeat in range(chosen.repeats):
        # There and back, so that a machine that slows down slows all alike.
        for contender in contenders if repeat % 2 == 0 else reversed(contenders):
            found = speeds(contender, settings, chosen.cores)
            measured[contender.name] += found
            told = ", ".join(f"{speed:.1f}" for speed in found)
            print(f"compare: {repeat + 1}/{chosen.repeats}: {contender.what}: {told} samples/s", file=sys.stderr, flush=True)
    median = {name: statistics.median(found) for name, found in measured.items()}

    print(f"Training {chosen.settings} on {len(chosen.cores)} cores: samples/s, median of {chosen.repeats} runs of "
          f"{chosen.epochs - 1} epochs each, and range")
    for contender in contenders:
        found = measured[contender.name]
        print(f"  {contender.what:<40} {median[contender.name]:8.1f}   {min(found):8.1f} to {max(found):8.1f}")
    print("Ratios")
    what = {contender.name: contender.what for contender in CONTENDERS}
    for name, other, goal in GOALS:
        if name in median and other in median:
            ratio = median[name] / median[other]
            verdict = "reached" if ratio >= goal else "missed"
            print(f"  {what[name]:<40} over {what[other]:<40} {ratio:6.2f}   goal {goal}: {verdict}")
    if "ours" in median and "dingo" in median:
        print(f"ratio {median['ours'] / median['dingo']:.3f}")


if __name__ == "__main__":
    main()
