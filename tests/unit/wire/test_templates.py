"""Templates: what is refused where they are written, and what they cannot do where they are rendered."""

import re
import resource
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.core.errors import Refused
from rota.wire.templates import NAMES, OUTPUT_CHARS_MAX, Unrendered, check_template, is_template, render

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
KNOWN: dict[str, Any] = {**dict.fromkeys(NAMES, "x"), "params": {"day": "mon", "n": [1, 2]}, "logical_date": AT}


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{ params.day }}", "mon"),
        ("{{ params['day'] | upper }}!\n", "MON!\n"),
        ("{% for n in params.n %}{{ n * 2 }};{% endfor %}", "2;4;"),
        ("{{ logical_date.strftime('%d.%m.') }}", "16.11."),
        ("{{ 'a b' | quote }}", "'a b'"),
        ("{{ params.get('night', 'none') }}", "none"),
        ("{% set x = 3 %}{{ x ** 2 }}", "9"),
        ("{{ 7 % 4 }}", "3"),
        ("{{ range(3) | join(',') }}", "0,1,2"),
    ],
)
def test_templates_render_what_they_are_given(text: str, rendered: str) -> None:
    assert is_template(text)
    check_template(text, ("day", "n"))
    assert render(text, KNOWN) == rendered


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ params.day", "line 1 .*'{{ params.day': unexpected end"),
        ("ok\n{% if %}", "line 2"),
        ("{{ day }}", "'day'"),
        ("a\nb {{ dag_run.conf }}", "line 2 .* 'dag_run'"),
        ("{{ params.night }}", r"}}.*'night'.*\bday\b"),
        ("{{ params['night'] }}", r"}}.*'night'.*\bday\b"),
        ("{{ params.__class__ }}", "}}.*'__class__'.* underscore"),
        ("{{ params['__class__'] }}", "}}.*'__class__'.* underscore"),
        ("{{ params|attr('__class__') }}", "}}.*'__class__'.* underscore"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "}}.*'__subclasses__'.* underscore"),
        ("{{ [params]|map(attribute='__class__')|list }}", "}}.*'__class__'.* underscore"),
        ("{{ '{0.__class__}'.format(params) }}", "}}.*'{0.__class__}'.* underscore"),
        ("{{ self._TemplateReference__context }}", "}}.*'(self|_TemplateReference__context)'"),
        ("{{ cycler.__init__.__globals__.os }}", "}}.*'(cycler|__init__|__globals__)'"),
        ("{{ lipsum() }}", "'lipsum'"),
        ("{% include '/etc/passwd' %}", "%}.* others"),
        ("{% import 'os' as os %}", "%}.* others"),
        ("{% extends 'x' %}", "%}.* others"),
        ("{{ 'x' | nofilter }}", "No filter named 'nofilter'"),
    ],
)
def test_a_template_that_is_wrong_or_reaches_too_far_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        check_template(text, ("day",))
    assert caught.value.code == "template.bad"
    assert re.search(said, caught.value.reason), caught.value.reason
    assert "A template knows attempt, ds," in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.__class__ }}",
        "{{ params['__cl' ~ 'ass__'] }}",
        "{{ params|attr('__cl' ~ 'ass__') }}",
        "{{ ''.join.__globals__ }}",
        "{{ ('{0.__cl' ~ 'ass__}').format(params) }}",
        "{{ [params]|map(attribute='__cl' ~ 'ass__')|first }}",
        "{{ params.update(a=1) }}",
        "{{ params.n.append(3) }}",
        "{{ params.night }}",
        "{{ 'x' * 2000000 }}",
        "{{ 2000000 * [1] }}",
        "{{ 2 ** 100000000 }}",
        "{{ '%0999999999d' % 1 }}",
        "{% for a in range(1000000) %}{{ a }}{% endfor %}",
        "{% for a in range(99999) %}{{ params.day * 100 }}{% endfor %}",
        "{% include 'x' %}",
        "{{ 1 / 0 }}",
        "{{ logical_date.strftime }}{{ nothing }}",
    ],
)
def test_what_a_check_could_not_see_is_stopped_where_it_is_rendered(text: str) -> None:
    with pytest.raises(Unrendered, match=r"^the template "):
        render(text, KNOWN)


def test_nothing_is_worked_out_while_a_template_is_checked() -> None:
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    check_template("{{ 'x' * 1000000000 * 1000000000 }}", ())
    check_template("{{ 'x' | center(1000000000) }}", ())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest < 200_000, "a gigabyte was made of it"


def test_the_output_is_bounded() -> None:
    assert len(render("{{ params.day }}" + "x" * (OUTPUT_CHARS_MAX - 3), KNOWN)) == OUTPUT_CHARS_MAX
    with pytest.raises(Unrendered, match="makes more than 1,000,000 characters"):
        render("{{ params.day }}" + "x" * (OUTPUT_CHARS_MAX - 2), KNOWN)
