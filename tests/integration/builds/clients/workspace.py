"""A workspace for Bazel that needs nothing from the internet, with rules of every kind."""

from pathlib import Path

GENRULES = 50
LIBRARIES = 4
SHARDS = 3
# Long enough that something can be done to the service while some of them run, and others wait.
SLOW = 24
SLOW_S = 0.3

_CC = ("library", "binary", "test", "import", "proto_library", "toolchain", "toolchain_suite")
_JAVA = ("binary", "import", "library", "runtime", "toolchain", "proto_library")
_COVERAGE = ("coverage_report_generator", "lcov_merger", "coverage_output_generator")


def make_workspace(folder: Path) -> Path:
    """The workspace, with stand-ins for the repositories that Bazel would fetch."""
    stubs, place = folder / "stubs", folder / "workspace"
    _write(stubs / "rules_cc", {"WORKSPACE": 'workspace(name="rules_cc")', "BUILD": "", "cc/BUILD": ""})
    names = [*(f"cc_{name}" for name in _CC), "objc_library"]
    _write(stubs / "rules_cc", {"cc/defs.bzl": "\n".join(f"{name} = native.{name}" for name in names)})
    _write(stubs / "rules_java", {"WORKSPACE": 'workspace(name="rules_java")', "BUILD": "", "java/BUILD": ""})
    text = "\n".join(f"java_{name} = native.java_{name}" for name in _JAVA)
    _write(stubs / "rules_java", {"java/defs.bzl": text})
    groups = [f'filegroup(name="{name}", srcs=["stub.sh"], visibility=["//visibility:public"])' for name in _COVERAGE]
    coverage = {
        "WORKSPACE": 'workspace(name="remote_coverage_tools")',
        "BUILD": "\n".join(groups),
        "stub.sh": "#!/bin/sh",
    }
    _write(stubs / "coverage", coverage)
    repositories = {"rules_cc": "rules_cc", "rules_java": "rules_java", "remote_coverage_tools": "coverage"}
    lines = [
        # It goes by itself if nobody is left who could ask it to.
        f"startup --output_user_root={folder / 'bazel'} --host_jvm_args=-Xmx1000m --max_idle_secs=120",
        "common --color=no --curses=no --noshow_progress",
        "build --nosandbox_debug --symlink_prefix=/ --jobs=8",
        *(f"build --override_repository={name}={stubs / stub}" for name, stub in repositories.items()),
    ]
    _write(place, {"WORKSPACE": 'workspace(name="rota")', ".bazelrc": "\n".join(lines)})
    _write(place / "many", _many())
    _write(place / "slow", _slow())
    _write(place / "tests", _tests())
    _write(place / "special", _special())
    return place


def _many() -> dict[str, str]:
    """Quick actions, and a program of several libraries."""
    rules = [f'genrule(name="g{i}", outs=["g{i}.txt"], cmd="echo {i} > $@")' for i in range(GENRULES)]
    rules += [f'cc_library(name="l{i}", srcs=["l{i}.cc"], hdrs=["l{i}.h"])' for i in range(LIBRARIES)]
    libraries = ", ".join(f'":l{i}"' for i in range(LIBRARIES))
    rules.append(f'cc_binary(name="main", srcs=["main.cc"], deps=[{libraries}])')
    files = {"BUILD": "\n".join(rules)}
    for i in range(LIBRARIES):
        files[f"l{i}.h"] = f"int f{i}();"
        files[f"l{i}.cc"] = f'#include "many/l{i}.h"\nint f{i}() {{ return {i}; }}'
    includes = "".join(f'#include "many/l{i}.h"\n' for i in range(LIBRARIES))
    total = " + ".join(f"f{i}()" for i in range(LIBRARIES))
    files["main.cc"] = f'#include <cstdio>\n{includes}int main() {{ printf("%d\\n", {total}); }}'
    return files


def _slow() -> dict[str, str]:
    rule = 'genrule(name="s{i}", outs=["s{i}.txt"], cmd="sleep {s}; echo {i} > $@")'
    long = 'genrule(name="long", outs=["long.txt"], cmd="sleep 300; echo > $@", tags=["manual"])'
    return {"BUILD": "\n".join([*(rule.format(i=i, s=SLOW_S) for i in range(SLOW)), long])}


def _tests() -> dict[str, str]:
    rules = [
        'sh_test(name="good", srcs=["good.sh"])',
        'sh_test(name="bad", srcs=["bad.sh"])',
        'sh_test(name="endless", srcs=["endless.sh"])',
        f'sh_test(name="sharded", srcs=["sharded.sh"], shard_count={SHARDS})',
    ]
    shard = 'echo shard $TEST_SHARD_INDEX of $TEST_TOTAL_SHARDS\ntouch "$TEST_SHARD_STATUS_FILE"'
    return {
        "BUILD": "\n".join(rules),
        "good.sh": "#!/bin/sh\necho fine\necho more > $TEST_UNDECLARED_OUTPUTS_DIR/more.txt",
        "bad.sh": "#!/bin/sh\necho broken >&2\nexit 1",
        "endless.sh": "#!/bin/sh\necho begun\nsleep 300",
        "sharded.sh": f"#!/bin/sh\n{shard}",
    }


def _special() -> dict[str, str]:
    rules = [
        'genrule(name="quantum", outs=["q.txt"], cmd="echo > $@", exec_properties={"qubits": "12"}, tags=["manual"])',
        # What an action leaves besides files: a folder with a link in it.
        'load(":tree.bzl", "tree")',
        'tree(name="tree")',
        'genrule(name="whole", srcs=[":tree"], outs=["w.txt"], cmd="find $(location :tree) | sort > $@")',
        'genrule(name="loud", outs=["loud.txt"], cmd="echo one; echo two >&2; echo > $@")',
        'genrule(name="broken", outs=["b.txt"], cmd="echo what went wrong >&2; exit 3", tags=["manual"])',
        'genrule(name="fresh", outs=["f.txt"], cmd="date +%s.%N > $@", tags=["no-cache"])',
    ]
    load = next(rule for rule in rules if rule.startswith("load"))
    rules.remove(load)
    bzl = """
def _tree(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    line = "mkdir -p $1/a/b && echo deep > $1/a/b/c.txt && ln -s c.txt $1/a/b/link && chmod +x $1/a/b/c.txt"
    ctx.actions.run_shell(outputs = [out], command = line, arguments = [out.path])
    return [DefaultInfo(files = depset([out]))]

tree = rule(implementation = _tree)
"""
    return {"BUILD": "\n".join([load, *rules]), "tree.bzl": bzl}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        if name.endswith(".sh"):
            path.chmod(0o755)
