"""What is installed of Rota: the packages that it needs, and those of its extras. Imports only the standard library,
so that `rota doctor` can say what is broken where nothing else can be imported.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata

# What every start imports.
_EVERY_START = ("rota.app.embedded", "rota.app.hosting", "rota.api.http.server", "rota.cli.examining")
_REINSTALL = "pip install --force-reinstall rota"
# Modules whose name is not that of their package.
_PACKAGE_OF = {"google": "protobuf", "prometheus_client": "prometheus-client"}
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
    lacking = lacking_packages()
    if lacking[""]:
        text = f"not installed: {', '.join(lacking[''])}"
        yield Finding("fail", "install", text, _REINSTALL)
        return
    for name in _EVERY_START:
        try:
            import_module(name)
        except ImportError as error:
            yield Finding("fail", "install", f"{name} cannot be imported: {error}", _REINSTALL)
            return
    have = [extra for extra, packages in lacking.items() if extra and not packages]
    lack = [extra for extra, packages in lacking.items() if packages]
    hint = f"What needs one says so. All of them: {install_command(*lack)}" if lack else ""
    yield Finding("ok", "install", f"extras: {', '.join(have) or 'none'}; without: {', '.join(lack) or 'none'}", hint)


def lacking_packages() -> dict[str, list[str]]:
    """Packages that are not installed, or not in the pinned version, by extra; "" is what Rota always needs."""
    found: dict[str, list[str]] = {"": []}
    for extra, name, versions in _requirements():
        lacking = found.setdefault(extra, [])
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            lacking.append(name)
            continue
        if versions.startswith("==") and versions != f"=={version}":
            lacking.append(f"{name}{versions} (it is {version})")
    return found


def extras_with(module: str) -> list[str]:
    """The extras that bring a module; none if Rota does not use it, or always needs it."""
    top = module.partition(".")[0]
    package = _PACKAGE_OF.get(top, top)
    return [extra for extra, name, _ in _requirements() if name == package and extra]


def install_command(*extras: str) -> str:
    return f"pip install 'rota[{','.join(extras)}]'" if extras else "pip install rota"


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Extra, package and versions of what Rota needs; extras for those who change Rota itself are left out."""
    own = {"all", "dev", "docs"}
    for line in metadata.requires("rota") or ():
        found = _REQUIREMENT.match(line)
        if found is not None and found["name"] != "rota" and found["extra"] not in own:
            yield found["extra"] or "", found["name"], found["versions"].strip()
