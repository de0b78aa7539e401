# SPDX-License-Identifier: Apache-2.0
"""Programs with one thing broken on purpose: MILL_MUTANT_NAME in the sources does it.

A build folder of its own is compiled once; for a mutant only the files that name it are compiled again, into
the same object files with the same time, so that ninja has nothing to do but link. (`scripts/build mutant
NAME` makes a whole build of one, for a closer look.)"""
import json
import os
import shlex
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIR = os.path.join(TOP, "build-mutants")
PREFIX = "MILL_MUTANT_"


def macro(name):
    return PREFIX + name.upper().replace("-", "_")


def sources():
    """Which files name which macro. Programs for the kernel are broken in each run of unit/bpf."""
    found = {}
    listing = subprocess.run(["git", "grep", "-oE", PREFIX + "[A-Z0-9_]+", "--", "*.c", "*.h", ":!*.bpf.c"], cwd=TOP,
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in listing.splitlines():
        path, name = line.split(":")
        found.setdefault(name, set()).add(path)
    return found


class Build:
    """The build folder without mutants, and the commands that made its objects. Targets: what of it is
    needed, all when none is named."""

    def __init__(self, *targets):
        if not os.path.exists(os.path.join(DIR, "build.ninja")):
            subprocess.run(["meson", "setup", DIR, TOP, "--buildtype=debugoptimized"], check=True,
                           stdout=subprocess.DEVNULL)
        self.ninja(*targets)
        self.tests = {test["name"]: test for test in self.introspect("--tests")}
        with open(os.path.join(DIR, "compile_commands.json"), encoding="utf-8") as file:
            self.commands = {command["output"]: command["command"] for command in json.load(file)}
        self.users = self.find_users()

    @staticmethod
    def introspect(what):
        return json.loads(subprocess.run(["meson", "introspect", what, DIR], check=True,
                                         stdout=subprocess.PIPE).stdout)

    @staticmethod
    def find_users():
        """Which objects were compiled from which file of the tree, headers included."""
        listing = subprocess.run(["ninja", "-C", DIR, "-t", "deps"], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        users = {}
        made = None
        for line in listing.splitlines():
            if line.startswith("    "):
                path = os.path.relpath(os.path.normpath(os.path.join(DIR, line.strip())), TOP)
                users.setdefault(path, set()).add(made)
            elif line:
                made = line.split(": #deps")[0]
        return users

    @staticmethod
    def ninja(*targets):
        done = subprocess.run(["ninja", "-C", DIR, *targets], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout[-4000:])

    @staticmethod
    def forget_links(programs):
        """Removes what is made of objects: ninja makes again what the programs need."""
        for folder, _, files in os.walk(DIR):
            for name in files:
                if name.endswith(".a"):
                    os.unlink(os.path.join(folder, name))
        for program in programs:
            if os.path.exists(program):
                os.unlink(program)

    def compile(self, made, name):
        """Compiles an object again with the mutant; its time stays."""
        status = os.stat(os.path.join(DIR, made))
        subprocess.run(shlex.split(self.commands[made]) + [f"-D{macro(name)}=1", "-w"], cwd=DIR,
                       check=True)
        os.utime(os.path.join(DIR, made), ns=(status.st_atime_ns, status.st_mtime_ns))

    @staticmethod
    def read(made):
        path = os.path.join(DIR, made)
        with open(path, "rb") as file:
            return file.read(), os.stat(path)

    @staticmethod
    def write(made, content):
        data, status = content
        path = os.path.join(DIR, made)
        with open(path, "wb") as file:
            file.write(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def link(self, name, paths, programs):
        """Makes the programs with the mutant, which the files of paths name, in them."""
        objects = sorted(set().union(*(self.users.get(path, set()) for path in paths)))
        saved = {made: self.read(made) for made in objects}
        try:
            for made in objects:
                self.compile(made, name)
            self.forget_links(programs)
            self.ninja(*(os.path.relpath(program, DIR) for program in programs))
        finally:
            for made, content in saved.items():
                self.write(made, content)
