# SPDX-License-Identifier: Apache-2.0
"""One rank of real.sh: PyTorch's NCCL over whatever transport the environment chooses.

Phases, given as arguments in order:
  results   every operation, type and size once; each result is compared with what this rank
            computes itself, and its digest goes into the report, for comparison between transports
  few       the same for a few of them
  disturb   the same, over and over for DISTURB_SECONDS, while a rail is cut or restored twice a second
  rounds    all-reduce at several sizes, REAL_ROUNDS times, each when real.sh says that it is this
            transport's turn
  ddp       a small model, DDP_STEPS steps, losses into the report
  ddpcut    the same model and data while rails are cut
  cut       all-reduces, one cut of rail0 after a second that nobody repairs: survived, or what NCCL
            says of it and when
With REAL_PLACE=1 a topology file gives the simulated NICs a place on the PCI tree.
Report: one JSON file per rank, $REAL_REPORT.RANK.
"""

import ctypes
import datetime
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = 2
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
TYPES = {"float": torch.float32, "half": torch.float16, "int32": torch.int32, "int64": torch.int64}
SIZES = [8, 256, 4096, 65536, 1 << 20, 16 << 20, 256 << 20]
SPEED_SIZES = [8, 4096, 65536, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
DISTURB_SECONDS = float(os.environ.get("DISTURB_SECONDS", "40"))
DDP_STEPS = int(os.environ.get("DDP_STEPS", "4000"))
DDP_FIRST = 500  # losses of so many steps have a digest of their own
REPORT = os.environ["REAL_REPORT"]
report = {"operations": 0, "wrong": 0, "digests": {}, "notes": []}


def write_report():
    with open(f"{REPORT}.{RANK}.new", "w", encoding="ascii") as file:
        json.dump(report, file)
    os.replace(f"{REPORT}.{RANK}.new", f"{REPORT}.{RANK}")


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


# ---- results ----


def data_of(rank, number, count, kind):
    """The input of a rank; every rank can make all of them."""
    generator = torch.Generator(device=DEVICE).manual_seed(1000003 * number + rank)
    if kind.startswith("int"):
        bits = 30 if kind == "int32" else 61
        return torch.randint(-(1 << bits), 1 << bits, (count,), device=DEVICE, dtype=TYPES[kind],
                             generator=generator)
    return torch.randn(count, device=DEVICE, dtype=torch.float32,
                       generator=generator).to(TYPES[kind])


def all_reduce(mine, other):
    result = mine.clone()
    dist.all_reduce(result)
    return result, mine + other


def all_gather(mine, other):
    result = torch.empty(2 * mine.numel(), dtype=mine.dtype, device=DEVICE)
    dist.all_gather_into_tensor(result, mine)
    return result, torch.cat([mine, other] if RANK == 0 else [other, mine])


def reduce_scatter(mine, other):
    half = mine.numel() // 2
    result = torch.empty(half, dtype=mine.dtype, device=DEVICE)
    dist.reduce_scatter_tensor(result, mine)
    return result, (mine + other)[RANK * half:(RANK + 1) * half]


def send_recv(mine, other):
    result = torch.empty_like(mine)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - RANK),
                                        dist.P2POp(dist.irecv, result, 1 - RANK)]):
        work.wait()
    return result, other


def all_to_all(mine, other):
    half = mine.numel() // 2
    result = torch.empty_like(mine)
    dist.all_to_all_single(result, mine)
    parts = [x[RANK * half:(RANK + 1) * half] for x in (mine, other)]
    return result, torch.cat(parts if RANK == 0 else parts[::-1])


OPERATIONS = [all_reduce, all_gather, reduce_scatter, send_recv, all_to_all]
CASES = [(operation, kind, size) for operation in OPERATIONS for kind in TYPES for size in SIZES]


def one(number):
    """Runs a case and compares bit for bit (a sum of two does not depend on the order)."""
    operation, kind, size = CASES[number]
    name = f"{operation.__name__} {kind} {size}"
    width = torch.empty(0, dtype=TYPES[kind]).element_size()
    count = max(2, size // width)
    mine, other = (data_of(r, number, count, kind) for r in (RANK, 1 - RANK))
    torch.cuda.synchronize()
    began = time.monotonic()
    result, expected = operation(mine, other)
    torch.cuda.synchronize()
    report["longest_s"] = max(report.get("longest_s", 0), time.monotonic() - began)
    bits = torch.int16 if kind == "half" else torch.int32
    words = result.view(bits).to(torch.int64)
    weights = torch.arange(1, words.numel() + 1, device=DEVICE) % 1000003
    digest = f"{int((words * weights).sum()) & (2 ** 64 - 1):016x}"
    report["operations"] += 1
    if (not torch.equal(result.view(bits), expected.view(bits))
            or report["digests"].setdefault(name, digest) != digest):
        report["wrong"] += 1
        report["notes"].append(f"{name}: wrong")


def results():
    for number in range(len(CASES)):
        one(number)


def few():
    for number in range(0, len(CASES), 9):
        if CASES[number][2] <= 1 << 20:
            one(number)


def together(condition):
    """The same answer on both ranks."""
    flag = torch.tensor([1 if condition else 0], device=DEVICE)
    dist.broadcast(flag, 0)
    return bool(flag.item())


def disturb():
    """All cases in an order that mixes them; small ones ten times as often."""
    report["longest_s"] = 0
    end = time.monotonic() + DISTURB_SECONDS
    order = [number * 67 % len(CASES) for number in range(len(CASES))]  # 67 and 140: all of them
    with Cutter(os.environ.get("REAL_FAULTS", "down").split(",")):
        turn = 0
        while together(time.monotonic() < end):
            number = order[turn % len(order)]
            for _ in range(10 if CASES[number][2] <= 1 << 20 else 1):
                one(number)
            turn += 1
    report["disturbed_longest_s"] = report["longest_s"]
    report["disturbed_cases"] = min(turn, len(CASES))


# ---- speed ----


def timed(tensor, repeats):
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(repeats):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return (time.monotonic() - began) / repeats


def speed():
    """Median seconds of an all-reduce per size."""
    found = {}
    for size in SPEED_SIZES:
        tensor = torch.zeros(size // 4, device=DEVICE)
        repeats = max(1, min(100, (8 << 20) // size))
        timed(tensor, 3 if size > 1 << 20 else 20)
        dist.barrier()
        groups = 25 if size <= 4096 else 9 if size < 256 << 20 else 3
        found[size] = statistics.median(timed(tensor, repeats) for _ in range(groups))
    return found


def rounds():
    """real.sh makes the file of a turn, rank 0 that of its end."""
    report["rounds"] = []
    for number in range(int(os.environ["REAL_ROUNDS"])):
        while not os.path.exists(f"{REPORT}.turn{number}"):
            time.sleep(0.005)
        report["rounds"].append(speed())
        write_report()
        dist.barrier()
        torch.cuda.synchronize()
        if RANK == 0:
            with open(f"{REPORT}.done{number}", "w", encoding="ascii"):
                pass


# ---- training ----


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
    began = time.monotonic()
    for _ in range(DDP_STEPS):
        inputs = torch.randn(64, 512, device=DEVICE, generator=generator)
        labels = (inputs.sum(1).abs() * 3).long() % 10
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    def digest(values):
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]

    report[label] = {"steps": DDP_STEPS, "seconds": time.monotonic() - began, "first": losses[0],
                     "last": losses[-1], "digest": digest(losses),
                     "digest_first": digest(losses[:DDP_FIRST])}


def ddp():
    train("ddp")


def ddpcut():
    with Cutter(["down"]):
        train("ddpcut")


# ---- a cut that nobody repairs ----


def watch_errors(communicator, began, stop):
    """What a program that asks ncclCommGetAsyncError() is told, and when; every five milliseconds."""
    library = ctypes.CDLL("libnccl.so.2")
    code = ctypes.c_int(0)
    while not stop.wait(0.005):
        library.ncclCommGetAsyncError(ctypes.c_void_p(communicator), ctypes.byref(code))
        if code.value not in (0, 7):  # success, in progress
            report["error"] = {"code": code.value, "after_s": time.monotonic() - began}
            write_report()
            return


def cut():
    tensor = torch.ones(1 << 20, device=DEVICE)
    group = dist.distributed_c10d._get_default_group()
    communicator = group._get_backend(DEVICE)._comm_ptr()
    end = time.monotonic() + 1
    while together(time.monotonic() < end):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    if RANK == 0:
        fabric("cut", "rail0")
    began = time.monotonic()
    report["cut"] = {"at": time.time(), "survived": False}
    write_report()
    stop = threading.Event()
    watcher = threading.Thread(target=watch_errors, args=(communicator, began, stop), daemon=True)
    watcher.start()
    while together(time.monotonic() < began + 3):
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    stop.set()
    watcher.join()
    report["cut"]["survived"] = True
    if RANK == 0:
        fabric("restore", "all")


# ---- the rank ----


def gpu_address():
    properties = torch.cuda.get_device_properties(DEVICE)
    return (f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0")


def place_nics():
    """Both NICs below the CPU of this rank's GPU. NCCL adds what the file does not say."""
    try:
        with open(f"/sys/bus/pci/devices/{gpu_address()}/numa_node", encoding="ascii") as file:
            node = file.read().strip()
    except OSError:
        node = "-1"
    with open("/proc/cpuinfo", encoding="ascii") as file:
        cpu = dict(reversed([[part.strip() for part in line.split(":", 1)]
                             for line in file if ":" in line]))
    lines = ['<system version="1">',
             f'  <cpu numaid="{node}" arch="x86_64" vendor="{cpu["vendor_id"]}" '
             f'familyid="{cpu["cpu family"]}" modelid="{cpu["model"]}">']
    for number in range(2):
        lines += [f'    <pci busid="0000:fe:0{number + 1}.0" class="0x020000" '
                  'link_speed="32.0 GT/s PCIe" link_width="16">',
                  f'      <nic><net name="sbr{number}"/></nic>', "    </pci>"]
    with open(f"{REPORT}.{RANK}.xml", "w", encoding="ascii") as file:
        file.write("\n".join(lines + ["  </cpu>", "</system>", ""]))
    os.environ["NCCL_TOPO_FILE"] = f"{REPORT}.{RANK}.xml"


def main():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.set_device(DEVICE)
    report["torch"] = torch.__version__
    report["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
    report["gpu"] = torch.cuda.get_device_name(DEVICE)
    if os.environ.get("REAL_PLACE") == "1":
        place_nics()
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
