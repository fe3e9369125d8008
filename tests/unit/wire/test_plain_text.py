"""Output of programs as text: no line is lost or joined, and nothing of it moves a cursor or reverses what follows."""

from hypothesis import given
from hypothesis import strategies as st

from rota.wire.plain_text import output_text, show_text

# What programs print, and what only a terminal obeys, in pieces that can stand next to each other in any order.
PIECES = [
    b"a",
    b"Err",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"\t",
    b"\x00",
    b"\x7f",
    b"\x9b",
    b"\xc3\xa9",
    b"\xc3",
    b"\xf0\x9f\x98\x80",
]
PIECES += [
    b"\xf0\x9f",
    b"\x1b",
    b"\x1b[31m",
    b"\x1b[",
    b"\x1b]0;title",
    b"\x07",
    b"\x1b\\",
    b"\xe2\x80\xae",
    b"\xe2\x80\xa8",
    b"\x0c",
]
OUTPUT = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


@given(OUTPUT)
def test_each_line_reads_the_same_alone_and_among_others(output: bytes) -> None:
    assert output_text(output).split("\n") == [output_text(line) for line in output.split(b"\n")]


@given(OUTPUT)
def test_nothing_is_left_that_a_terminal_obeys(output: bytes) -> None:
    for text in (output_text(output).replace("\r", ""), show_text(output.decode(errors="replace"))):
        assert all(char in "\n\t" or (char.isprintable() or char == "\u2028") for char in text), ascii(text)


def test_what_a_terminal_obeys_is_not_shown() -> None:
    assert show_text("a\x1b[31mred\x1b[0m\r\nb\rc\x00\x1b]0;title\x07\td") == "ared\nb\nc�\td"
    assert show_text("plain ✓\ttext\n") == "plain ✓\ttext\n"
    assert output_text(b"50 %\r\x1b[K100 %\r\n") == "50 %\r100 %\r\n"


def test_a_character_that_would_reverse_text_is_replaced() -> None:
    assert show_text("invoice\u202egpj.exe") == "invoice\ufffdgpj.exe"
    assert show_text("\u2066a\u2069 שלום") == "\ufffda\ufffd שלום", "letters that run the other way stay"
