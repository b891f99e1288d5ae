# make demo    set up, build, train the demo on two ranks
# make test    set up, build, run all tests
# make build   set up, build target/release/dingo-spmd
# make lint    formatting and warnings, which are errors
# make clean   remove what was built (not .venv)

RANKS ?= 2

# A rustup installed for this user counts even where PATH does not name it.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: build demo test lint setup clean

build: setup
	cargo build --release

setup:
	@scripts/setup.sh

demo: build
	scripts/mpirun.sh $(RANKS) target/release/dingo-spmd settings/demo.yaml

# Two tests at a time, one thread a rank: more would only take turns on the cores of a small machine.
test: setup
	OMP_NUM_THREADS=1 RUST_TEST_THREADS=2 cargo test --release

lint: setup
	cargo fmt --check
	cargo clippy --release --all-targets -- -D warnings

clean:
	rm -rf target settings/demo
