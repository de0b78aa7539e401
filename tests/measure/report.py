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


def tables(result):
    """Markdown of a result."""
    machine = result["machine"]
    lines = [f"Machine: {machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_bytes'] / 2**30:.0f} GiB, "
             f"kernel {machine['kernel']}; load average {machine['load_average']:.1f} at the end.", ""]
    if result["floor"]:
        lines += ["### What the machine gave", "", "| what | figure |", "|---|---|"]
        lines += [f"| {name.replace('_', ' ')} | {number(value)} |" for name, value in result["floor"].items()]
        lines.append("")
    lines += ["### Loads", "", "| load | subject | metric | median | lowest | highest | to Kafka's (range) |",
              "|---|---|---|---|---|---|---|"]
    ratio = {(row["name"], row["subject"].split("/")[0], row["metric"]): row
             for row in result["rows"] if row["unit"] == "ratio"}
    for row in result["rows"]:
        if row["unit"] == "ratio":
            continue
        compared = ratio.get((row["name"], row["subject"], row["metric"]))
        told = "" if compared is None else (f"{compared['value']:.2f} ({compared['range'][0]:.2f} to "
                                            f"{compared['range'][1]:.2f})")
        lines.append(f"| {row['name']} | {row['subject']} | {row['metric']}, {row['unit']} | "
                     f"{number(row['value'])} | {number(min(row['runs']))} | {number(max(row['runs']))} | "
                     f"{told} |")
    return "\n".join(lines) + "\n"


def document(result):
    """Puts the tables between the marks of docs/performance.md; what is written by hand stays."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    assert BEGIN in text and END in text, f"{DOCUMENT} has lost its marks"
    made = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{tables(result)}{END}", text, flags=re.S)
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(made)


def write(result, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
