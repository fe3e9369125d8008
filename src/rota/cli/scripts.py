"""Scripts that complete `rota` in shells. What there is to complete is in them; names of runs and such are asked for.

Those of bash and zsh are one table and one walk over the words that were typed; fish has rules, one for each option.
"""

from collections.abc import Iterator

from rota.cli import COMMANDS
from rota.cli.outline import Outline, Word, outline

_FILES = "files"

_BASH = r"""# Completes rota in bash. Made by `rota completion bash`.
declare -gA _rota_words=(
%(words)s
)
declare -gA _rota_values=(
%(values)s
)
_rota() {
    local current=${COMP_WORDS[COMP_CWORD]} path=rota next="" place=1 word key names i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ -n $next ]]; then
            next=""
        elif [[ $word == -* ]]; then
            [[ -n ${_rota_values["$path $word"]+x} ]] && next="$path $word"
        elif [[ -n ${_rota_words["$path $word"]+x} && $place == 1 ]]; then
            path="$path $word"
        else
            ((place++))
        fi
    done
    key=${next:--}
    if [[ -z $next && $current != -* ]]; then
        key="$path #$place"
        [[ -z ${_rota_values["$key"]+x} ]] && key="$path #*"
    fi
    local what=${_rota_values["$key"]-}
    COMPREPLY=()
    case $what in
        =*) COMPREPLY=($(compgen -W "${what#=}" -- "$current")) ;;
        @files) COMPREPLY=($(compgen -f -- "$current")) ;;
        @*)
            names=$(rota completion --names "${what#@}" --line "${COMP_WORDS[*]}" 2>/dev/null)
            COMPREPLY=($(compgen -W "$names" -- "$current"))
            ;;
    esac
    if [[ -z $next && ( $current == -* || -z $what ) ]]; then
        COMPREPLY=($(compgen -W "${_rota_words["$path"]-}" -- "$current"))
    fi
}
complete -o filenames -F _rota rota
"""

_ZSH = r"""#compdef rota
# Completes rota in zsh. Made by `rota completion zsh`.
typeset -gA _rota_words=(
%(words)s
)
typeset -gA _rota_values=(
%(values)s
)
_rota() {
    local current=${words[CURRENT]} where=rota next="" word key what
    local -i place=1 i
    for ((i = 2; i < CURRENT; i++)); do
        word=${words[i]}
        if [[ -n $next ]]; then
            next=""
        elif [[ $word == -* ]]; then
            key="$where $word"
            (( ${+_rota_values[$key]} )) && next=$key
        else
            key="$where $word"
            if (( ${+_rota_words[$key]} && place == 1 )); then where=$key; else (( place++ )); fi
        fi
    done
    key=${next:--}
    if [[ -z $next && $current != -* ]]; then
        key="$where #$place"
        (( ${+_rota_values[$key]} )) || key="$where #*"
    fi
    what=${_rota_values[$key]-}
    case $what in
        (\=*) compadd -- ${=what#=} ;;
        (@files) _files ;;
        (@*) compadd -- ${(f)"$(rota completion --names ${what#@} --line "${words[*]}" 2>/dev/null)"} ;;
    esac
    if [[ -z $next && ( $current == -* || -z $what ) ]]; then
        key=$where
        compadd -- ${=_rota_words[$key]-}
    fi
}
if [[ $funcstack[1] == _rota ]]; then _rota "$@"; else compdef _rota rota; fi
"""


def bash() -> str:
    """For bash."""
    return _BASH % {"words": _table(_words()), "values": _table(_values())}


def zsh() -> str:
    """For zsh."""
    return _ZSH % {
        "words": "\n".join(f"    {_quote(key)} {_quote(value)}" for key, value in _words()),
        "values": "\n".join(f"    {_quote(key)} {_quote(value)}" for key, value in _values()),
    }


def _table(pairs: Iterator[tuple[str, str]]) -> str:
    return "\n".join(f"    [{_quote(key)}]={_quote(value)}" for key, value in pairs)


def _quote(text: str) -> str:
    assert "'" not in text, "options, verbs and choices are words of ours"
    return f"'{text}'"


def _all(commands: list[Outline] | tuple[Outline, ...]) -> Iterator[Outline]:
    for each in commands:
        yield each
        yield from _all(each.verbs)


def _words() -> Iterator[tuple[str, str]]:
    """What may be typed after each path: its verbs and options."""
    yield "rota", "--help --version"
    for each in _all(outline()):
        options = [name for word in each.options for name in word.names]
        yield f"rota {each.name}", " ".join([*(verb.path[-1] for verb in each.verbs), *options, "--help"])


def _values() -> Iterator[tuple[str, str]]:
    """What may stand behind an option that takes a value, or in a place: `=` and words, or `@` and a kind."""
    yield "rota #1", "=" + " ".join(COMMANDS)
    for each in _all(outline()):
        for word in each.options:
            if word.value:
                yield from ((f"rota {each.name} {name}", _value(word)) for name in word.names)
        if each.verbs:
            yield f"rota {each.name} #1", "=" + " ".join(verb.path[-1] for verb in each.verbs)
        for number, word in enumerate(each.places, 1):
            if _value(word):
                yield f"rota {each.name} #{'*' if word.is_many else number}", _value(word)


def _value(word: Word) -> str:
    if word.choices:
        return "=" + " ".join(word.choices)
    return f"@{word.kind}" if word.kind else ""


def fish() -> str:
    """For fish."""
    lines = [
        "# Completes rota in fish. Made by `rota completion fish`.",
        "function __rota_names",
        "    rota completion --names $argv[1] --line (commandline -p) 2>/dev/null",
        "end",
        "complete -c rota -f",
    ]
    for name, (_, summary) in COMMANDS.items():
        lines.append(f"complete -c rota -n __fish_use_subcommand -a {name} -d {_fish(summary)}")
    for each in outline():
        lines += _rules(each, f"__fish_seen_subcommand_from {each.path[0]}")
    return "\n".join(lines) + "\n"


def _rules(each: Outline, seen: str) -> Iterator[str]:
    verbs = " ".join(verb.path[-1] for verb in each.verbs)
    for verb in each.verbs:
        first = f"{seen}; and not __fish_seen_subcommand_from {verbs}"
        yield f"complete -c rota -n {_fish(first)} -a {verb.path[-1]} -d {_fish(verb.summary)}"
        yield from _rules(verb, f"{seen}; and __fish_seen_subcommand_from {verb.path[-1]}")
    for word in each.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in word.names)
        yield f"complete -c rota -n {_fish(seen)} {names}{_argument(word)} -d {_fish(word.help)}"
    for word in each.places:
        if _value(word):
            yield f"complete -c rota -n {_fish(seen)}{_argument(word, '')}"


def _argument(word: Word, takes: str = " -x") -> str:
    """What an option takes, or a place: words of ours, files, or names that are asked for."""
    if word.kind == _FILES:
        return " -r -F" if takes else " -F"
    if not word.value and word.is_option:
        return ""
    if word.choices:
        return f"{takes} -a {_fish(' '.join(word.choices))}"
    return f"{takes} -a {_fish(f'(__rota_names {word.kind})')}" if word.kind else takes


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
