"""One local step of W2's network on one thread, computed in several ways.

``python benchmarks/convolutions.py [--compile]`` prints a table: milliseconds of processor time a step and client, the
median of five rounds, and the ratio to the plain step of the same round with its lowest and highest value. Each round
is a process with the allocator's defaults and one that keeps freed memory (``offbeat.training.worker_process``).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, unfold
from workloads import W2

from offbeat.training.max_pooling import fast_max_pooling
from offbeat.training.trainers.batched.unfolded_convolution import unfolded_convolutions
from offbeat.training.worker_process import keep_freed_memory

_ROUNDS, _STEPS, _MODELS = 5, 10, 4
_LAYERS = ((3, 32, 32), (32, 64, 16), (64, 64, 8))  # channels in and out, width


def plain(context: Any, prepare: Callable[[Tensor], Tensor] = lambda inputs: inputs, compiled: str = "") -> Any:
    """Return a function that takes a step of one model."""
    model = W2.make()
    inputs, labels = (part[: W2.batch_size] for part in W2.data())
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    forward: Callable[[Tensor], Tensor] = model
    if compiled == "inductor":
        forward = torch.compile(model)
    elif compiled == "trace":
        forward = torch.jit.trace(model, inputs)

    def step() -> None:
        with context:
            outputs = forward(prepare(inputs))
        cross_entropy(outputs, labels).backward()
        for parameter in parameters:
            parameter.data.sub_(parameter.grad, alpha=W2.lr)
            parameter.grad.zero_()

    return step


def batched(context: Any) -> Any:
    """Return a function that computes the gradients of several models by vmap."""
    model = W2.make()
    stacked = {name: part.detach().repeat(_MODELS, *[1] * part.dim()) for name, part in model.named_parameters()}
    inputs, labels = (part[: _MODELS * W2.batch_size].unflatten(0, (_MODELS, -1)) for part in W2.data())

    def loss(parameters: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        with context:
            return cross_entropy(functional_call(model, parameters, (inputs,)), labels)

    slopes = vmap(grad(loss))
    return lambda: slopes(stacked, inputs, labels)


def products() -> Any:
    """Return a function that only does the products of a step's unfolded layers."""
    work = []
    for channels, out, width in _LAYERS:
        rows, weight = torch.randn(W2.batch_size * width**2, 9 * channels), torch.randn(9 * channels, out)
        work.append((rows, weight, torch.randn(len(rows), out), channels > 3))

    def step() -> None:
        for rows, weight, slopes, has_gradient in work:
            _ = rows @ weight, rows.t() @ slopes
            if has_gradient:
                _ = slopes @ weight.t()

    return step


def unfolding() -> Any:
    """Return a function that only unfolds the inputs of a step's convolutions."""
    images = [torch.randn(W2.batch_size, channels, width, width) for channels, _, width in _LAYERS]
    return lambda: [unfold(image, 3, padding=1) for image in images]


def measure(keep: bool, compiled: bool) -> dict[str, float]:
    """Return the milliseconds a step and client of each row, in this process."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    rows = {
        "plain": plain(nullcontext()),
        "max-pooling by oneDNN": plain(fast_max_pooling(nn.MaxPool2d(2))),
        "channels-last": plain(nullcontext(), lambda x: x.contiguous(memory_format=torch.channels_last)),
        "matrix products alone": products(),
        "unfolding alone": unfolding(),
        "vmap": batched(nullcontext()),
        "vmap, unfolded": batched(unfolded_convolutions()),
    }
    found: dict[str, float] = {}
    if compiled:
        rows |= {"jit.trace": plain(nullcontext(), compiled="trace")}
        rows |= {"torch.compile": plain(nullcontext(), compiled="inductor")}
        began = time.perf_counter()
        rows["torch.compile"]()
        found["torch.compile, first step"] = 1000 * (time.perf_counter() - began)
    for name, step in rows.items():
        for _ in range(3):
            step()
        began = time.thread_time()
        for _ in range(_STEPS):
            step()
        found[name] = 1000 * (time.thread_time() - began) / _STEPS / (_MODELS if "vmap" in name else 1)
    return found


def main() -> None:
    """Print the table, or as ``--child`` one process's figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="also torch.jit.trace and torch.compile")
    parser.add_argument("--child", choices=["default", "keep"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child == "keep", arguments.compile)))
        return
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(_ROUNDS):
        rounds.append({})
        for allocator in ("default", "keep"):
            command = [sys.executable, __file__, "--child", allocator, *["--compile"] * arguments.compile]
            rounds[-1][allocator] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    print("| step | allocator | ms | plain / this | lowest … highest |\n| --- | --- | ---: | ---: | --- |")
    for name in rounds[0]["default"]:
        for allocator in ("default", "keep"):
            own = [found[allocator][name] for found in rounds]
            ratios = [found["default"]["plain"] / found[allocator][name] for found in rounds]
            figures = f"{statistics.median(own):.1f} | {statistics.median(ratios):.2f}"
            print(f"| {name} | {allocator} | {figures} | {min(ratios):.2f} … {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
