# SPDX-License-Identifier: Apache-2.0
"""One rank of real.sh: PyTorch's NCCL over whatever transport the environment chooses.

Phases, given as arguments in order:
  results   every operation, type and size once; each result is compared with what this rank
            computes itself, and its digest goes into the report, for comparison between transports
  disturb   the same for DISTURB_SECONDS while rank 0 cuts and restores a rail every second
  speed     all-reduce: time of 8 bytes, bus bandwidth of 64 MiB
  ddp       a small model, DDP_STEPS steps, losses into the report
  ddpcut    the same model and data while rails are cut
  cut       all-reduces, one cut of rail0 after a second that nobody repairs: survived, or how long
            until the process hears of it
Report: one JSON file per rank, $REAL_REPORT.RANK.
"""

import datetime
import hashlib
import json
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = 2
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
TYPES = {"float": torch.float32, "half": torch.float16, "int": torch.int32}
SIZES = [8, 256, 4096, 65536, 1 << 20, 16 << 20, 256 << 20]
DISTURB_SECONDS = float(os.environ.get("DISTURB_SECONDS", "30"))
DDP_STEPS = int(os.environ.get("DDP_STEPS", "300"))
report = {"operations": 0, "wrong": 0, "digests": {}, "notes": []}


def fabric(*arguments):
    subprocess.run(
        [os.environ["REAL_SWITCHBACK"], "fabric", arguments[0], os.environ["SWITCHBACK_FABRIC"]]
        + list(arguments[1:]),
        check=True,
        stdout=subprocess.DEVNULL,
    )


class Cutter:
    """Cuts a rail for half of every second, the rails in turn, from rank 0 alone."""

    def __init__(self, how):
        self.how, self.count, self.stop = how, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        if RANK == 0:
            self.thread.start()
        return self

    def run(self):
        while not self.stop.wait(0.5):
            fabric("cut", f"rail{self.count % 2}", "--how", self.how[self.count % len(self.how)])
            self.count += 1
            self.stop.wait(0.5)
            fabric("restore", "all")

    def __exit__(self, *_):
        if RANK == 0:
            self.stop.set()
            self.thread.join()
            report["cuts"] = report.get("cuts", 0) + self.count


def data_of(rank, number, count, kind):
    """The input of a rank; every rank can make all of them."""
    generator = torch.Generator(device=DEVICE).manual_seed(1000003 * number + rank)
    if kind == "int":
        return torch.randint(-(1 << 30), 1 << 30, (count,), device=DEVICE, dtype=torch.int32,
                             generator=generator)
    return torch.randn(count, device=DEVICE, dtype=torch.float32,
                       generator=generator).to(TYPES[kind])


def all_reduce(mine, other, number):
    result = mine.clone()
    dist.all_reduce(result)
    return result, mine + other


def all_gather(mine, other, number):
    result = torch.empty(2 * mine.numel(), dtype=mine.dtype, device=DEVICE)
    dist.all_gather_into_tensor(result, mine)
    return result, torch.cat([mine, other] if RANK == 0 else [other, mine])


def reduce_scatter(mine, other, number):
    half = mine.numel() // 2
    result = torch.empty(half, dtype=mine.dtype, device=DEVICE)
    dist.reduce_scatter_tensor(result, mine)
    return result, (mine + other)[RANK * half:(RANK + 1) * half]


def send_recv(mine, other, number):
    result = torch.empty_like(mine)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - RANK),
                                        dist.P2POp(dist.irecv, result, 1 - RANK)]):
        work.wait()
    return result, other


def all_to_all(mine, other, number):
    half = mine.numel() // 2
    result = torch.empty_like(mine)
    dist.all_to_all_single(result, mine)
    parts = [x[RANK * half:(RANK + 1) * half] for x in (mine, other)]
    return result, torch.cat(parts if RANK == 0 else parts[::-1])


OPERATIONS = [all_reduce, all_gather, reduce_scatter, send_recv, all_to_all]


def one(operation, kind, size, number):
    """Runs, compares bit for bit (a sum of two does not depend on the order), returns a digest."""
    width = torch.empty(0, dtype=TYPES[kind]).element_size()
    count = max(2, size // width)
    mine, other = (data_of(r, number, count, kind) for r in (RANK, 1 - RANK))
    began = time.monotonic()
    result, expected = operation(mine, other, number)
    torch.cuda.synchronize()
    took = time.monotonic() - began
    bits = torch.int16 if kind == "half" else torch.int32
    good = torch.equal(result.view(bits), expected.view(bits))
    report["operations"] += 1
    if not good:
        report["wrong"] += 1
        report["notes"].append(f"{operation.__name__} {kind} {size}: wrong")
    report["longest_s"] = max(report.get("longest_s", 0), took)
    words = result.view(bits).to(torch.int64)
    weights = torch.arange(1, words.numel() + 1, device=DEVICE) % 1000003
    return f"{int((words * weights).sum()) & (2 ** 64 - 1):016x}"


def results():
    number = 0
    for operation in OPERATIONS:
        for kind in TYPES:
            for size in SIZES:
                number += 1
                report["digests"][f"{operation.__name__} {kind} {size}"] = one(
                    operation, kind, size, number)


def together(condition):
    """The same answer on both ranks."""
    flag = torch.tensor([1 if condition else 0], device=DEVICE)
    dist.broadcast(flag, 0)
    return bool(flag.item())


def disturb():
    report["longest_s"] = 0
    end = time.monotonic() + DISTURB_SECONDS
    number = 0
    with Cutter(os.environ.get("REAL_FAULTS", "down").split(",")):
        while together(time.monotonic() < end):
            for operation in OPERATIONS:
                number += 1  # five operations, six sizes: they meet in all pairs
                kind = list(TYPES)[number // 7 % 3]
                one(operation, kind, SIZES[number % 6], 5000 + number)
    report["disturbed_longest_s"] = report["longest_s"]


def timed(count, repeats):
    tensor = torch.ones(count, device=DEVICE)
    for _ in range(5):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    began = time.monotonic()
    for _ in range(repeats):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return (time.monotonic() - began) / repeats


def speed():
    report["latency_us"] = timed(2, 500) * 1e6
    report["bus_gb_s"] = (64 << 20) / timed(16 << 20, 20) / 1e9  # two ranks: bus = algorithm


def train(label):
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 2048), torch.nn.ReLU(),
        torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
        torch.nn.Linear(2048, 10)).to(DEVICE)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[DEVICE.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator(device=DEVICE).manual_seed(99 + RANK)
    losses = []
    for _ in range(DDP_STEPS):
        inputs = torch.randn(64, 512, device=DEVICE, generator=generator)
        labels = (inputs.sum(1).abs() * 3).long() % 10
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    packed = json.dumps(losses).encode()
    report[label] = {"steps": DDP_STEPS, "first": losses[0], "last": losses[-1],
                     "digest": hashlib.sha256(packed).hexdigest()[:16]}


def ddp():
    train("ddp")


def ddpcut():
    with Cutter(["down"]):
        train("ddpcut")


def cut():
    tensor = torch.ones(1 << 20, device=DEVICE)
    end = time.monotonic() + 1
    while together(time.monotonic() < end):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if RANK == 0:
        fabric("cut", "rail0")
    began = time.monotonic()
    report["cut_survived"] = False
    write_report()
    with open(f"{os.environ['REAL_REPORT']}.cut", "w", encoding="ascii") as file:
        file.write(f"{time.time()}\n")
    while together(time.monotonic() < began + 3):
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    report["cut_survived"] = True
    if RANK == 0:
        fabric("restore", "all")


def write_report():
    with open(f"{os.environ['REAL_REPORT']}.{RANK}", "w", encoding="ascii") as file:
        json.dump(report, file)


def main():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.set_device(DEVICE)
    report["torch"] = torch.__version__
    report["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
    report["gpu"] = torch.cuda.get_device_name(DEVICE)
    dist.init_process_group("nccl", init_method="env://", rank=RANK, world_size=WORLD,
                            timeout=datetime.timedelta(seconds=120), device_id=DEVICE)
    for phase in sys.argv[1:]:
        began = time.monotonic()
        globals()[phase]()
        torch.cuda.synchronize()
        dist.barrier()
        report.setdefault("seconds", {})[phase] = round(time.monotonic() - began, 1)
        write_report()
    dist.destroy_process_group()


main()
