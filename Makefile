# The front door. Each target does its own set-up first; the work is done by scripts/ and CMake's presets.
#   make demo ARGS='--model cnn --json out.json'
#   make test LIBTORCH=/opt/libtorch          a LibTorch 2.11 of your own, instead of PyPI's
#   make test PRESET=debug JOBS=1

SHELL := /bin/bash
.DEFAULT_GOAL := help
# Two targets at once would build in one folder at once; within a build, JOBS compilers run side by side.
.NOTPARALLEL:
.PHONY: help setup build demo test test-all test-sanitizers test-gpu check-torch-versions wheel bench bench-peers bench-gpu gpu-bundle kernel-table docs format clean

ARGS ?=
TORCH ?= 2.11
PRESET ?= release
export LIBTORCH Torch_DIR PYTHON JOBS

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\n%s\n' "ARGS='...' goes to the program; LIBTORCH=/path uses your LibTorch 2.11; JOBS=n limits the compilers."

setup: ## install what is missing: system packages by apt, LibTorch 2.11 into .deps/
	@scripts/setup.sh

build: setup ## configure and build everything in build/release (PRESET=debug, asan, tsan: build/<preset>)
	@scripts/build.sh $(PRESET)

demo: setup ## train three models on handwritten digits, stock and hindcast, and compare them
	@scripts/build.sh release digits
	@build/release/examples/digits $(ARGS)

test: setup ## build and run the tests (ARGS go to ctest, for example ARGS='-R capture'); long sweeps run in parts that rotate with the commit
	@scripts/test.sh $(PRESET) $(ARGS)

test-all: setup ## all sweeps as a whole, all kernels by NVRTC, the tests in a browser; and a build of each file by itself
	@scripts/install_browser.sh
	@HINDCAST_ALL_TESTS=1 scripts/test.sh release $(ARGS)
	@scripts/build.sh debug

test-sanitizers: setup ## all tests under ASan and UBSan, those with threads under TSan
	@scripts/test_sanitizers.sh $(ARGS)

test-gpu: setup ## the tests that need a CUDA card, on a machine that has one (elsewhere they skip and say why)
	@scripts/build.sh release test_gpu
	@build/release/tests/test_gpu $(ARGS)

check-torch-versions: setup ## build and test against torch 2.12 to 2.15 in turn, print a table (ARGS='2.12 2.15')
	@scripts/check_torch_versions.sh $(ARGS)

wheel: setup ## make the Python package's wheel in dist/ (TORCH=2.15: for that release, in dist/torch-2.15/)
	@scripts/wheel.sh $(TORCH)

bench: setup ## run the benchmarks, write bench/results/, print one table
	@scripts/build.sh release hindcast_bench
	@scripts/bench.sh $(ARGS)

bench-peers: setup ## the same shapes under PyTorch's own compilers, in a Python of their own (.deps/peers)
	@scripts/build.sh release hindcast_python
	@scripts/bench_peers.sh $(ARGS)

bench-gpu: setup ## backwards on a CUDA card, stock and hindcast in turn (ARGS='--quick --benchmark_filter=softmax')
	@scripts/build.sh release hindcast_bench_gpu
	@build/release/bench/hindcast_bench_gpu $(ARGS)

gpu-bundle: setup ## make build/gpu-bundle: tests and benchmarks for a machine with a card and a torch, but without our packages
	@scripts/gpu_bundle.sh

kernel-table: setup ## write the table of kernels' registers anew (CONTRIBUTING.md says when)
	@scripts/kernel_table.sh

docs: ## render README, docs/ and the headers to build/docs/html
	@scripts/docs.sh

format: ## format the C++ with clang-format 14 (ARGS=--check only looks)
	@scripts/format.sh $(ARGS)

clean: ## remove what was built; .deps/ stays
	rm -rf build
