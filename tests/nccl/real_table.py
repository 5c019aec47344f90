# SPDX-License-Identifier: Apache-2.0
"""Reads the reports that real.py left in a folder and prints the tables of RESULTS.md.

Exit status: 0 all as it has to be, 1 not so; the last lines say what.
"""

import json
import os
import platform
import re
import statistics
import sys

FOLDER = sys.argv[1]
SPEEDS = {"sockets": "speed-socket", "plugin": "speed-plugin", "failover off": "speed-off",
          "NCCL's IB": "speed-stock"}
# Of ncclResult_t, what a network can end in.
CODES = {1: "ncclUnhandledCudaError", 2: "ncclSystemError", 3: "ncclInternalError", 5: "ncclInvalidUsage",
         6: "ncclRemoteError"}
failures = []


def require(condition, what):
    if not condition:
        failures.append(what)


def text_of(name):
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def report_of(name, rank=0):
    return json.loads(text_of(f"{name}.{rank}") or "{}")


def value(report, path):
    for key in path.split("."):
        report = report.get(key, {}) if isinstance(report, dict) else {}
    if isinstance(report, float):
        return f"{report:.3g}"
    return "–" if report == {} else str(report)


def correctness():
    print("| transport | operations | wrong | cuts | longest operation with cuts (s) | DDP steps | losses | with cuts |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, words in (("socket", "NCCL's sockets"), ("plugin", "plugin"),
                        ("merged", "plugin, both ports as one device"),
                        ("stock", "NCCL's own IB transport on the same fabric")):
        report = report_of(name)
        print(f"| {words} | " + " | ".join(value(report, path) for path in (
            "operations", "wrong", "cuts", "disturbed_longest_s", "ddp.steps", "ddp.digest", "ddpcut.digest")) + " |")
    print()
    for name in ("plugin", "merged"):
        for rank in (0, 1):
            report = report_of(name, rank)
            require(report.get("operations", 0) > 0 and report.get("wrong") == 0,
                    f"{name}, rank {rank}: {value(report, 'wrong')} wrong results of {value(report, 'operations')}")
            require("disturb" in report.get("seconds", {}), f"{name}, rank {rank}: did not end the phase with cuts")
        ours, sockets = ([report_of(which, rank).get("digests", {}) for rank in (0, 1)] for which in (name, "socket"))
        equal = sum(mine[case] == theirs.get(case) for mine, theirs in zip(ours, sockets) for case in mine)
        total = sum(len(theirs) for theirs in sockets)
        print(f"* {name}: {equal} of {total} results equal those over sockets bit for bit; "
              f"{value(report_of(name), 'disturbed_cases')} of {total // 2} cases also under cuts.")
        require(equal == total > 0, f"{name}: results differ from those over sockets")
    plugin, socket = report_of("plugin"), report_of("socket")
    print(f"* DDP: {value(plugin, 'ddp.seconds')} s undisturbed, {value(plugin, 'ddpcut.seconds')} s with cuts; "
          f"the first 500 losses over sockets: {value(socket, 'ddp.digest_first')}, over the plugin: "
          f"{value(plugin, 'ddp.digest_first')}.")
    require(value(plugin, "ddp.digest") == value(plugin, "ddpcut.digest") != "–", "losses with cuts differ")
    require(value(plugin, "ddp.digest_first") == value(socket, "ddp.digest_first") != "–",
            "losses differ from those over sockets")
    uses = len(re.findall(r"via NET/Switchback/2\b", text_of("merged.0.log")))
    print(f"* Both ports as one device: {uses} channels of rank 0 use device 2 (sbr0+sbr1).")
    require(uses > 0, "merged: the virtual device was not used")


def fate(name, words, limit):
    """What became of a job whose rail0 was cut and not repaired."""
    reports = [report_of(name, rank) for rank in (0, 1)]
    cut = reports[0].get("cut")
    if cut is None:
        print(f"| {words} | did not get as far | – | – |")
        return
    errors = []
    for report in reports:
        error = report.get("error")
        errors.append("none" if error is None
                      else f"{CODES.get(error['code'], error['code'])} after {error['after_s']:.3g} s")
    if cut["survived"]:
        print(f"| {words} | {errors[0]} | {errors[1]} | went on |")
    else:
        ends = [float(text_of(f"{name}.{rank}.end") or "nan") - cut["at"] for rank in (0, 1)]
        print(f"| {words} | {errors[0]} | {errors[1]} | ended after {max(ends):.1f} s |")
        require(limit is None or max(ends) < limit + 10, f"{name}: ended only {max(ends):.1f} s after the cut")
    if limit is None:
        require(cut["survived"], f"{name}: the job did not survive the cut")
    else:
        for rank, report in enumerate(reports):
            require(report.get("error", {}).get("after_s", 1e9) < limit, f"{name}: rank {rank} was not told of the cut")


def fates():
    print("\nA cut of rail0 that nobody repairs, and what NCCL says of it (`ncclCommGetAsyncError`):\n")
    print("| transport | rank 0 | rank 1 | job |")
    print("| --- | --- | --- | --- |")
    fate("plugin", "plugin", None)
    fate("speed-off", "plugin, failover off", 5.0)
    fate("stock", "NCCL's own IB transport (NCCL_IB_TIMEOUT=18)", 40.0)
    lines = [line for rank in (0, 1) for line in text_of(f"speed-off.{rank}.log").splitlines()
             if "WARN" in line and "Switchback" in line]
    print(f"\nWith failover off the plugin logged, first of {len(lines)} lines of both ranks:\n")
    print("```\n" + (lines[0] if lines else "nothing") + "\n```")
    require(lines, "speed-off: no WARN of the plugin")


def ratios(rounds, other, size):
    """Median and quartiles of the rounds' ratios: what disturbs a whole round cancels out."""
    found = [mine[size] / theirs[size] for mine, theirs in zip(rounds["plugin"], rounds[other])]
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def overhead():
    rounds = {words: report_of(name).get("rounds", []) for words, name in SPEEDS.items()}
    count = min(len(found) for found in rounds.values())
    require(count > 1, "not two rounds of all transports: " +
            ", ".join(f"{words} {len(found)}" for words, found in rounds.items()))
    rounds = {words: found for words, found in rounds.items() if len(found) > 1}
    count = min((len(found) for found in rounds.values()), default=0)
    print(f"\nAll-reduce, medians of {count} rounds in which the transports take turns (bus bandwidth = "
          "size / time for two ranks); then time over the plugin ÷ over another, median of the rounds' ratios (quartiles):\n")
    others = [words for words in rounds if words != "plugin"]
    print("| size | " + " | ".join(rounds) + " | " + " | ".join(f"÷ {words}" for words in others) + " |")
    print("| --- |" + " --- |" * (len(rounds) + len(others)))
    for size in rounds["plugin"][0] if "plugin" in rounds else []:
        times = [statistics.median(found[size] for found in rounds[words]) for words in rounds]
        cells = [f"{t * 1e6:.1f} µs" if int(size) < 1 << 20 else f"{int(size) / t / 1e9:.2f} GB/s" for t in times]
        print(f"| {int(size)} | " + " | ".join(cells + [ratios(rounds, words, size) for words in others]) + " |")
    print("\nThe simulated fabric by itself on this machine (`fabric_speed`):\n\n```")
    print(text_of("fabric_speed").rstrip() + "\n```")
    alone = dict(re.findall(r"^(.*?) both ways +([0-9.]+) Gbit/s", text_of("fabric_speed"), re.MULTILINE))
    size = str(64 << 20)
    for words, what in (("plugin", "RC 1 MiB"), ("sockets", "TCP 1 MiB")):
        if words in rounds and what in alone:
            reached = int(size) / statistics.median(found[size] for found in rounds[words]) / 1e9 * 8
            print(f"{'' if words == 'sockets' else chr(10)}* {words}, 64 MiB all-reduce: {reached:.1f} Gbit/s each way, "
                  f"{reached / float(alone[what]):.2f} of \"{what} both ways\", where one thread of each end sends and "
                  "receives as NCCL's progress thread does.")


def main():
    first = report_of("socket")
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    print(f"PyTorch {value(first, 'torch')}, NCCL {value(first, 'nccl')}, 2 x {value(first, 'gpu')}, "
          f"{platform.system()} {platform.release()}, {libc}\n")
    correctness()
    fates()
    overhead()
    if failures:
        print("\nNot as it has to be:")
        print("\n".join(f"* {what}" for what in failures))
    return 1 if failures else 0


sys.exit(main())
