"""What is installed of Rota: the packages that it needs, and those of its extras.

Imports only the standard library, so that `rota doctor` can name what is broken where nothing else can be imported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata

# The parts of a service and of this command that import nearly everything else.
_PARTS = ("rota.app.embedded", "rota.app.hosting", "rota.api.http.server", "rota.cli.examining")
_REINSTALL = "Install it again: pip install --force-reinstall, with what you installed it from."
# Modules of the extras whose name is not that of their package.
_PACKAGE_OF = {"google.rpc": "googleapis-common-protos", "google": "protobuf"}
# Extras for those who change Rota itself.
_NOT_FOR_USERS = ("all", "dev", "docs")
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?P<versions>[^;]*)(?:;.*extra == ['\"](?P<extra>\w+)['\"])?"
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `grade` is ok, warn or fail."""

    grade: str
    what: str
    text: str
    hint: str = ""


def check_install() -> Iterator[Finding]:
    """Whether everything that Rota needs is there and can be imported, and which extras are."""
    try:
        lacking = lacking_packages()
    except metadata.PackageNotFoundError:
        yield Finding("fail", "install", "rota is not installed as a package: its metadata is missing", _REINSTALL)
        return
    if lacking[""]:
        yield Finding("fail", "install", f"not installed: {', '.join(lacking[''])}", _REINSTALL)
        return
    for name in _PARTS:
        try:
            import_module(name)
        except Exception as error:
            # Not only ImportError: packages of versions that do not fit raise errors of their own.
            text = f"{name} cannot be imported: {type(error).__name__}: {error}"
            yield Finding("fail", "install", text, _REINSTALL)
            return
    have = [extra for extra, packages in lacking.items() if extra and not packages]
    lack = [extra for extra, packages in lacking.items() if packages]
    hint = f"A command that needs an extra names it. To install all: {install_command(*lack)}" if lack else ""
    text = f"extras: {', '.join(have) or 'none'}; not installed: {', '.join(lack) or 'none'}"
    yield Finding("ok", "install", text, hint)


def lacking_packages() -> dict[str, list[str]]:
    """Packages that are not installed, or not in a version that fits, by extra; "" is what Rota always needs."""
    found: dict[str, list[str]] = {"": []}
    for extra, name, versions in _requirements():
        lacking = found.setdefault(extra, [])
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            lacking.append(name)
            continue
        if not _fits(version, versions):
            lacking.append(f"{name}{versions} (it is {version})")
    return found


def extras_with(module: str) -> list[str]:
    """The extras that bring a module; none if Rota does not use it, or always needs it."""
    parts = module.split(".")
    package = _PACKAGE_OF.get(".".join(parts[:2])) or _PACKAGE_OF.get(parts[0], parts[0])
    return [extra for extra, name, _ in _requirements() if name == package and extra]


def install_command(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install 'rota[{','.join(extras)}]'"


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Extra, package and versions of what Rota needs."""
    for line in metadata.requires("rota") or ():
        found = _REQUIREMENT.match(line)
        if found is not None and found["name"] != "rota" and found["extra"] not in _NOT_FOR_USERS:
            yield found["extra"] or "", found["name"], found["versions"].strip()


def _fits(version: str, wanted: str) -> bool:
    """Whether a version is the pinned one, or not older than the least; `pyproject.toml` says nothing else."""
    if wanted.startswith("=="):
        return version == wanted.removeprefix("==")
    return not wanted.startswith(">=") or version_numbers(version) >= version_numbers(wanted)


def version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, to compare it by."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
