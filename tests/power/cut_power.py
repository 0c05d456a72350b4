#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes disks as they may be after their power went, and judges what was found on them.

usage: cut_power.py cut LOG FOLDER SEED DISK:TYPE:SYNCS:CUTS:BASE...
       cut_power.py judge FOLDER GUEST_LOG

`cut` draws moments in the log of serve_disks.py. At each, a disk holds what a flush made durable, and
of every write after that all, nothing, or some sectors of 512 bytes. Into FOLDER go disks.img (one
file system behind the other), table.img (which the guest reads) and cuts.json. BASE is the disk as it was
at first. `judge` holds what the guest printed against what save() had promised at that moment; it
fails if a checkpoint was lost with all syncs, or none was without some.
"""
import json
import os
import random
import re
import sys

import block_log

SECTOR = 512
ALIGN = 1 << 20


def sectors(data):
    return range(0, len(data), SECTOR)


class Cutter:
    """One disk, cut at later and later moments of the log."""

    def __init__(self, log, writes, base, folder):
        self.log, self.writes = log, writes
        self.durable_path = os.path.join(folder, "durable.img")
        copy_sparse(base, self.durable_path, 0)
        self.durable = os.open(self.durable_path, os.O_RDWR)
        self.applied = 0

    def close(self):
        os.close(self.durable)
        os.remove(self.durable_path)

    def cut(self, covered, written, draw, out, offset):
        """Puts one possible state to `offset` of the file `out`. Returns what became of how many."""
        for record in self.writes[self.applied : covered]:
            os.pwrite(self.durable, block_log.data_of(self.log, record), record.where)
        self.applied = max(self.applied, covered)
        copy_sparse(self.durable_path, out, offset)
        handle = os.open(out, os.O_RDWR)
        kept = draw.choice([0.0, 0.1, 0.5, 0.9])
        torn = draw.choice([0.0, 0.1, 0.5])
        fates = {"kept": 0, "torn": 0, "dropped": 0}
        for record in self.writes[self.applied : written]:
            fate = draw.random()
            name = "kept" if fate < kept else "torn" if draw.random() < torn else "dropped"
            fates[name] += 1
            data = block_log.data_of(self.log, record)
            for at in sectors(data) if name != "dropped" else ():
                if name == "kept" or draw.random() < 0.5:
                    os.pwrite(handle, data[at : at + SECTOR], offset + record.where + at)
        os.close(handle)
        return fates


def copy_sparse(source, target, offset):
    """Copies what of the file is not a hole."""
    size = os.path.getsize(source)
    read = os.open(source, os.O_RDONLY)
    write = os.open(target, os.O_RDWR | os.O_CREAT)
    os.ftruncate(write, max(os.fstat(write).st_size, offset + size))
    at = 0
    while at < size:
        try:
            at = os.lseek(read, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end
            break
        end = os.lseek(read, at, os.SEEK_HOLE)
        while at < end:
            data = os.pread(read, min(end - at, 1 << 20), at)
            if data.count(0) < len(data):
                os.pwrite(write, data, offset + at)
            at += len(data)
    os.close(read)
    os.close(write)


def moments(log, disks):
    """Of each disk: its writes, and the moments between its first and its last mark as tuples of
    (writes made durable, writes so far, newest step that save() has returned for, kind of request)."""
    writes = [[] for _ in disks]
    covered, step, found = [0] * len(disks), [0] * len(disks), [[] for _ in disks]
    for record in block_log.records(log):
        if record.kind == block_log.MARK:
            name, number = block_log.data_of(log, record).split(b"\0")[0].decode().split()
            step[disks.index(name)] = int(number)
            continue
        disk = record.disk
        if record.kind == block_log.FLUSH:
            covered[disk] = max(covered[disk], record.where)
        else:
            writes[disk].append(record)
        found[disk].append((covered[disk], len(writes[disk]), step[disk], record.kind))
    return writes, found


def choose(found, count, draw):
    """A quarter of them anywhere, one around a flush, one where save() was about to return, one
    where there is much to lose."""
    last = max(step for _, _, step, _ in found)
    possible = [i for i, moment in enumerate(found) if 0 < moment[2] < last]
    flushes = [i for i in possible if found[i][3] == block_log.FLUSH]
    returned = [i for i in possible[1:] if found[i][2] > found[i - 1][2]]
    at_stake = [written - covered for covered, written, _, _ in (found[i] for i in possible)]
    kinds = (
        lambda: draw.choice(possible),
        lambda: draw.choice(flushes) + draw.randint(-4, 1),
        lambda: draw.choice(returned) - draw.randint(1, 10),
        lambda: draw.choices(possible, at_stake)[0],
    )
    chosen = (kinds[i % len(kinds)]() for i in range(count))
    return sorted(min(max(i, possible[0]), possible[-1]) for i in chosen)


def cut(log_path, folder, seed, *arguments):
    draw = random.Random(int(seed))
    disks = [argument.split(":") for argument in arguments]
    out = os.path.join(folder, "disks.img")
    open(out, "wb").close()
    cuts, offset = [], 0
    with open(log_path, "rb") as log:
        writes, found = moments(log, [disk[0] for disk in disks])
        for number, (_, kind, syncs, count, base) in enumerate(disks):
            cutter = Cutter(log, writes[number], base, folder)
            size = os.path.getsize(base)
            for i in choose(found[number], int(count), draw):
                covered, written, step, _ = found[number][i]
                fates = cutter.cut(covered, written, draw, out, offset)
                entry = {"type": kind, "syncs": syncs, "saved": step, "offset": offset}
                cuts.append({**entry, "bytes": size, "request": i, **fates})
                offset += -(-size // ALIGN) * ALIGN
            cutter.close()
    with open(os.path.join(folder, "cuts.json"), "w", encoding="utf-8") as file:
        json.dump({"seed": int(seed), "cuts": cuts}, file, indent=0)
    table = "".join(f"{i} {c['type']} {c['offset']} {c['bytes']}\n" for i, c in enumerate(cuts))
    with open(os.path.join(folder, "table.img"), "wb") as file:
        file.write(table.encode().ljust(ALIGN, b"\0"))
    return 0


def verdict(cut_made, text):
    """old, new, or what was lost."""
    match = re.fullmatch(r"step (\d+), (\d+) names", text or "")
    if not match:
        return text or "the guest said nothing"
    ahead = int(match[1]) - cut_made["saved"]
    if ahead in (0, 1):
        return "new" if ahead else "old"
    return f"lost: step {match[1]} where save() had returned for {cut_made['saved']}"


def judge(folder, guest_log):
    with open(os.path.join(folder, "cuts.json"), encoding="utf-8") as file:
        made = json.load(file)
    with open(guest_log, encoding="utf-8", errors="replace") as file:
        text = file.read().replace("\r", "")
    said = {int(n): line for n, line in re.findall(r"^cut (\d+): (.*)$", text, re.MULTILINE)}
    rows, failed = {}, 0
    for i, one in enumerate(made["cuts"]):
        found = verdict(one, said.get(i))
        row = rows.setdefault((one["type"], one["syncs"]), dict.fromkeys(COLUMNS, 0))
        row["cuts"] += 1
        row["old" if found == "old" else "new" if found == "new" else "lost"] += 1
        for fate in ("kept", "torn", "dropped"):
            row[fate] += one[fate]
        if found not in ("old", "new") and one["syncs"] == "all":
            failed += 1
            print(f"cut {i} ({one}): {found}")
    print(f"seed {made['seed']}; writes that no flush covered, by what became of them:")
    print(f"{'':28}" + "".join(f"{name:>9}" for name in COLUMNS))
    for (kind, syncs), row in rows.items():
        print(f"{kind + ', syncs ' + syncs:28}" + "".join(f"{row[name]:9}" for name in COLUMNS))
        if syncs != "all" and row["lost"] == 0:
            print(f"nothing was lost with syncs {syncs}: this check sees nothing")
            failed += 1
    return 1 if failed else 0


COLUMNS = ("cuts", "old", "new", "lost", "kept", "torn", "dropped")

if __name__ == "__main__":
    sys.exit({"cut": cut, "judge": judge}[sys.argv[1]](*sys.argv[2:]))
