"""What a mutant is: a mistake as an exchange of source text, and the rule of the design that it breaks."""

from msgspec import Struct


class Edit(Struct, frozen=True):
    """In `module`, `old` becomes `new`."""

    module: str
    old: str
    new: str


class Mutant(Struct, frozen=True):
    """One mistake. `rule` is the rule of the design that it breaks; some rules are kept by more than one place."""

    name: str
    rule: str
    edits: tuple[Edit, ...]


def mistake(name: str, rule: str, module: str, old: str, new: str, *more: tuple[str, str, str]) -> Mutant:
    """A mutant with one edit or, where a rule is kept by several places, with more."""
    edits = ((module, old, new), *more)
    return Mutant(name, rule, tuple(Edit(f"rota.{edit[0]}", edit[1], edit[2]) for edit in edits))
