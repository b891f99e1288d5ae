#!/usr/bin/env bash
# Everything the build needs, once: system packages, a libtorch, and .cargo/config.toml, which tells cargo where they are.
# A second run finds all in place and changes nothing. Without root it uses what the machine has (environment modules
# included) and lists what is missing.
#
# To point at your own:  LIBTORCH=/path/to/torch   DINGO_SPMD_PYTHON=/path/to/python3 (with torch 2.11)
#                        HDF5_DIR=/path/to/hdf5    LIBCLANG_PATH=/path/with/libclang.so   MPICC=mpicc
# For GPUs, where the headers of CUDA and NCCL do not lie beside libtorch:  CUDA_HOME=/path/to/cuda   NCCL_HOME=/path/to/nccl
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
# Headers that torch's own wheels lack, of the CUDA that it was built with (13.0).
cuda_headers=("nvidia-cuda-crt==13.0.88" "nvidia-cuda-cccl==13.0.85")
oldest_cargo=1.85
say() { printf 'setup: %s\n' "$*"; }

# ------------------------------------------------------------------------------------------- what the machine lacks
have() { command -v "$1" >/dev/null 2>&1; }
have_mpi() { have "${MPICC:-mpicc}" && have mpirun; }
have_hdf5() { [ -n "${HDF5_DIR:-}" ] || have h5cc || pkg-config --exists hdf5 2>/dev/null; }
find_libclang() {
    local folder
    for folder in "${LIBCLANG_PATH:-}" "$(llvm-config --libdir 2>/dev/null || true)" /usr/lib/llvm-*/lib /usr/lib64 /usr/lib/*-linux-gnu; do
        if [ -n "$folder" ] && compgen -G "$folder/libclang*.so*" >/dev/null; then return 0; fi
    done
    return 1
}
have_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }
have_compiler() { have c++ && have cc && have make; }
have_cargo() {
    local found
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$found" ] && [ "$(printf '%s\n' "$oldest_cargo" "$found" | sort -V | head -1)" = "$oldest_cargo" ]
}

packages=()
want_packages() {
    packages=()
    have_compiler || packages+=(build-essential)
    have pkg-config || packages+=(pkg-config)
    have_mpi || packages+=(libopenmpi-dev openmpi-bin)
    have_hdf5 || packages+=(libhdf5-dev)
    find_libclang || packages+=(libclang-dev clang)
    have python3 || packages+=(python3)
    have_venv || packages+=(python3-venv)
}

install_packages() {
    have apt-get || return 0
    local root=()
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then root=(sudo -n)
        elif have sudo && [ -t 0 ]; then root=(sudo)
        else return 0; fi
    fi
    say "installing ${packages[*]}"
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# A rustup that was installed for this user but is not on this shell's PATH.
if ! have cargo && [ -r "$HOME/.cargo/env" ]; then . "$HOME/.cargo/env"; fi

want_packages
if [ ${#packages[@]} -gt 0 ]; then install_packages; want_packages; fi

# ------------------------------------------------------------------------------------------------------- libtorch
# The folder of the torch package that this python has, if its version fits.
torch_folder() {
    "$1" - "$torch_version" 2>/dev/null <<'PYTHON'
import importlib.util, pathlib, re, sys
spec = importlib.util.find_spec("torch")
folder = pathlib.Path(spec.origin).parent
version = re.search(r"__version__ = '([^'+]+)", (folder / "version.py").read_text()).group(1)
print(folder) if version == sys.argv[1] else sys.exit(1)
PYTHON
}

missing=()
libtorch=""
if [ -n "${LIBTORCH:-}" ]; then
    libtorch=$LIBTORCH
    [ -e "$libtorch/lib/libtorch_cpu.so" ] || missing+=("LIBTORCH=$LIBTORCH has no lib/libtorch_cpu.so: give the folder that holds lib/ and include/ of libtorch $torch_version")
else
    for python in "${DINGO_SPMD_PYTHON:-}" .venv/bin/python3 python3; do
        [ -n "$python" ] && libtorch=$(torch_folder "$python") && break
        libtorch=""
    done
    if [ -z "$libtorch" ] && have_venv; then
        say "installing torch $torch_version into .venv (about 5 GB on disk)"
        [ -x .venv/bin/python3 ] || python3 -m venv .venv
        if .venv/bin/python3 -m pip install -q --disable-pip-version-check "torch==$torch_version" "numpy"; then
            libtorch=$(torch_folder .venv/bin/python3) || libtorch=""
        fi
    fi
    [ -n "$libtorch" ] || missing+=("libtorch $torch_version: set DINGO_SPMD_PYTHON to a python3 that has torch==$torch_version, or LIBTORCH to an unpacked libtorch")
fi

# Without them the build leaves GPUs out, and says so. They are put beside the torch in .venv only: others are the user's.
if [ -z "${LIBTORCH:-}" ] && [ -x .venv/bin/python3 ] && [ "$libtorch" = "$(torch_folder .venv/bin/python3)" ] \
    && [ -e "$libtorch/lib/libtorch_cuda.so" ] && [ -d "$libtorch/../nvidia/cu13/include" ] \
    && ! { [ -e "$libtorch/../nvidia/cu13/include/crt/host_defines.h" ] && [ -e "$libtorch/../nvidia/cu13/include/cccl/nv/target" ]; }; then
    say "installing CUDA's headers into .venv"
    .venv/bin/python3 -m pip install -q --disable-pip-version-check --no-deps "${cuda_headers[@]}" || true
fi

# bindgen, which reads mpi.h, wants libclang; PyPI has it for machines without root.
libclang=${LIBCLANG_PATH:-}
clang_arguments=""
if ! find_libclang && [ -x .venv/bin/python3 ] && have cc; then
    .venv/bin/python3 -m pip install -q --disable-pip-version-check libclang || true
    libclang=$(.venv/bin/python3 -c 'import clang, pathlib; print(pathlib.Path(clang.__file__).parent / "native")' 2>/dev/null || true)
    # That wheel brings no C headers of its own; the compiler's do.
    if [ -n "$libclang" ]; then clang_arguments="-I$(cc -print-file-name=include)"; fi
fi

# ------------------------------------------------------------------------------------------------------- the verdict
have_compiler || missing+=("a C and C++ compiler and make (Debian: build-essential; a cluster: module load gcc)")
have_mpi || missing+=("MPI: mpicc and mpirun on PATH (Debian: libopenmpi-dev openmpi-bin; a cluster: module load openmpi)")
have_hdf5 || missing+=("HDF5 1.10 or later: h5cc on PATH or HDF5_DIR=/its/prefix (Debian: libhdf5-dev; a cluster: module load hdf5)")
find_libclang || [ -n "$libclang" ] || missing+=("libclang: LIBCLANG_PATH=/folder/with/libclang.so (Debian: libclang-dev; a cluster: module load llvm)")
have_cargo || missing+=("Rust $oldest_cargo or later: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh")
if [ ${#missing[@]} -gt 0 ]; then
    say "this machine lacks:"
    printf '  - %s\n' "${missing[@]}"
    say "then run the same command again"
    exit 1
fi

# Written only when it changes: cargo builds anew when it does.
mkdir -p .cargo
{
    echo "# Written by scripts/setup.sh."
    echo "[env]"
    echo "LIBTORCH = \"$(cd "$libtorch" && pwd)\""
    # Libraries built by hand are taken as they are: the version is the user's choice.
    [ -z "${LIBTORCH:-}" ] || echo 'LIBTORCH_BYPASS_VERSION_CHECK = "1"'
    [ -z "${HDF5_DIR:-}" ] || echo "HDF5_DIR = \"$HDF5_DIR\""
    [ -z "$libclang" ] || echo "LIBCLANG_PATH = \"$libclang\""
    [ -z "$clang_arguments" ] || echo "BINDGEN_EXTRA_CLANG_ARGS = \"$clang_arguments\""
} > .cargo/config.toml.new
if cmp -s .cargo/config.toml.new .cargo/config.toml; then rm .cargo/config.toml.new; else mv .cargo/config.toml.new .cargo/config.toml; fi
