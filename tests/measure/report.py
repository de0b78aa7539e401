# SPDX-License-Identifier: Apache-2.0
"""What came of a run: JSON as scripts/bench promises, a table for people, and docs/performance.md."""
import json
import os
import re
import statistics

from lib.broker import TOP
from measure.rows import Row

DOCUMENT = os.path.join(TOP, "docs/performance.md")
BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


def number(value):
    """Four digits, with thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratios(rows):
    """Millrace against Kafka: ratio of medians, and the range over rounds that ran side by side."""
    found = []
    kafka = {(row.name, row.metric): row for row in rows if row.subject == "kafka"}
    for row in rows:
        base = kafka.get((row.name, row.metric))
        if base is None or not row.subject.startswith("millrace") or not min(base.runs) > 0:
            continue
        each = [ours / theirs for ours, theirs in zip(row.runs, base.runs)]
        found.append({"name": row.name, "subject": f"{row.subject}/kafka", "metric": row.metric, "unit": "ratio",
                      "value": statistics.median(row.runs) / statistics.median(base.runs),
                      "range": [min(each), max(each)], "runs": each})
    return found


def as_json(machine, floor, rows):
    plain = [{"name": row.name, "subject": row.subject, "metric": row.metric, "unit": row.unit,
              "value": statistics.median(row.runs), "runs": row.runs} for row in rows]
    return {"machine": machine, "floor": floor, "rows": plain + ratios(rows)}


def merge(results):
    """Several runs as one: the floor and each row of the last that has it."""
    merged = {"machine": results[-1]["machine"], "floor": {}, "rows": []}
    by_key = {}
    for result in results:
        merged["floor"].update(result["floor"])
        for row in result["rows"]:
            by_key[row["name"], row["subject"], row["metric"]] = row
    merged["rows"] = list(by_key.values())
    return merged


def rows_of(result):
    return [Row(row["name"], row["subject"], row["metric"], row["unit"], row["runs"])
            for row in result["rows"] if row["unit"] != "ratio"]


FLOOR, LOADS, WAKING = "### What the machine gave", "### Loads", "### Waking"
WAKE = "wake"  # its rows have a table of their own
WAKE_COLUMNS = ("p50", "p99", "max", "idle", "turns")


def floor_table(floor):
    return [f"| {name.replace('_', ' ')} | {number(value)} |" for name, value in floor.items()]


def load_table(result):
    """Lines by load."""
    ratio = {(row["name"], row["subject"].split("/")[0], row["metric"]): row
             for row in result["rows"] if row["unit"] == "ratio"}
    lines = []
    for row in result["rows"]:
        if row["unit"] == "ratio" or row["name"] == WAKE:
            continue
        compared = ratio.get((row["name"], row["subject"], row["metric"]))
        told = "" if compared is None else (f"{compared['value']:.2f} ({compared['range'][0]:.2f} to "
                                            f"{compared['range'][1]:.2f})")
        lines.append(f"| {row['name']} | {row['subject']} | {row['metric']}, {row['unit']} | "
                     f"{number(row['value'])} | {number(min(row['runs']))} | {number(max(row['runs']))} | "
                     f"{told} |")
    return lines


def wake_table(result):
    """A line for each transport."""
    found = {}
    for row in result["rows"]:
        if row["name"] == WAKE:
            found.setdefault(row["subject"], {})[row["metric"]] = row["value"]
    return [f"| {transport} | " + " | ".join(f"{100 * one[name]:.2f} %" if name == "idle" else number(one[name])
                                             for name in WAKE_COLUMNS) + " |"
            for transport, one in found.items()]


HEADS = {
    FLOOR: ["| what | figure |", "|---|---|"],
    LOADS: ["| load | subject | metric | median | lowest | highest | to Kafka's (range) |", "|---|---|---|---|---|---|---|"],
    WAKING: ["| transport | p50 us | p99 us | longest us | idle CPU | turns a second |", "|---|---|---|---|---|---|"],
}


def machine_line(machine):
    return (f"Machine: {machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_bytes'] / 2**30:.0f} GiB, "
            f"kernel {machine['kernel']}; load average {machine['load_average']:.1f} at the end.")


def load_of(line):
    return line.split("|")[1].strip()


def sections(result, kept=None):
    """Lines of each table. Of what was not measured now the lines of before are kept: of a load all or none,
    because subjects are compared within a run."""
    kept = kept or {}
    made = {FLOOR: floor_table(result["floor"]), LOADS: load_table(result), WAKING: wake_table(result)}
    fresh = {}
    for line in made[LOADS]:
        fresh.setdefault(load_of(line), []).append(line)
    merged = []
    for load in dict.fromkeys([load_of(line) for line in kept.get(LOADS, [])] + list(fresh)):
        merged += fresh.get(load) or [line for line in kept[LOADS] if load_of(line) == load]
    made[LOADS] = merged
    return {name: lines or kept.get(name, []) for name, lines in made.items()}


def tables(result, kept=None):
    """Markdown of a result, and of the lines that are kept beside it."""
    lines = [machine_line(result["machine"])]
    for name, body in sections(result, kept).items():
        if body:
            lines += ["", name, "", *HEADS[name], *body]
    return "\n".join(lines) + "\n"


def kept_lines(text):
    """Lines of the tables that the document has, by section."""
    found, name = {}, None
    for line in text.splitlines():
        if line in HEADS:
            name = line
        elif line.startswith("|") and line not in HEADS[name]:
            found.setdefault(name, []).append(line)
    return found


def document(result):
    """Puts the tables between the marks of docs/performance.md; what is written by hand stays, and so do the
    lines of loads that this result does not have."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    assert BEGIN in text and END in text, f"{DOCUMENT} has lost its marks"
    kept = kept_lines(text.split(BEGIN)[1].split(END)[0])
    made = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{tables(result, kept)}{END}", text, flags=re.S)
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(made)


def write(result, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
