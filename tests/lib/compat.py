# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/compatibility.md. Each belongs to one test, which knows its rows: what of a client is tried, and what
came of it, or why it is left out. A full run writes its table; another run fails when the document says something
else, so that the document is what the last run saw."""
import os

from lib.broker import FULL, TOP

PATH = os.path.join(TOP, "docs/compatibility.md")
HEAD = """# Compatibility

What clients and tools of others do against Millrace. Each table is written by a full run of the test that it names
(`scripts/test full NAME`); the default run does a part and compares. Do not edit between the marks.
"""


class Table:
    """Rows in the order in which they were declared, whatever order they are run in."""

    def __init__(self, name, title):
        self.name = name
        self.title = title
        self.rows = {}

    def row(self, subject, what):
        assert subject not in self.rows, subject
        self.rows[subject] = [what, None]

    def result(self, subject, text):
        self.rows[subject][1] = text

    def leave_out(self, subject, what, reason):
        self.row(subject, what)
        self.result(subject, f"left out: {reason}")

    def text(self):
        missing = [subject for subject, (_, result) in self.rows.items() if result is None]
        assert not missing, f"no result for {missing}"
        lines = [f"<!-- begin {self.name} -->", f"## {self.title}", "", f"`scripts/test {self.name}`", "",
                 "| subject | what is tried | result |", "|---|---|---|"]
        lines += [f"| {subject} | {what} | {result} |" for subject, (what, result) in self.rows.items()]
        return "\n".join([*lines, f"<!-- end {self.name} -->"]) + "\n"

    def finish(self):
        """Writes the table after a full run, compares it after another one."""
        document = HEAD
        if os.path.exists(PATH):
            with open(PATH, encoding="utf-8") as source:
                document = source.read()
        mark = f"<!-- end {self.name} -->\n"
        begin = document.find(f"<!-- begin {self.name} -->")
        end = document.find(mark) + len(mark)
        if begin < 0:
            document += "\n"
            begin = end = len(document)
        table = self.text()
        if document[begin:end] == table:
            return
        assert FULL, f"{PATH} says something else of {self.name} than this run:\n{table}"
        with open(PATH, "w", encoding="utf-8") as out:
            out.write(document[:begin] + table + document[end:])
        print(f"written: the table of {self.name} in docs/compatibility.md")
