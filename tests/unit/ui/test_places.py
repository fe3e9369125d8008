"""Where the bar leads: to what there is, and to nothing else."""

from starlette.responses import Response

from rota.ui.places import PLACES, shown
from rota.ui.visits import Page, Visit


async def serve(visit: Visit) -> Response:
    return Response()


def test_a_place_is_shown_once_there_is_a_page_at_its_path():
    pages = [Page(path=path, serve=serve, summary="") for path in ("/workers", "/", "/elsewhere")]
    assert [place.title for place in shown(pages)] == ["Home", "Workers"]


def test_what_only_takes_a_form_is_no_place():
    assert shown([Page(path="/workers", serve=serve, summary="", method="POST")]) == ()


def test_no_two_places_have_the_same_key_or_path():
    assert len({place.key for place in PLACES}) == len(PLACES)
    assert len({place.path for place in PLACES}) == len(PLACES)


def test_a_page_belongs_to_one_place():
    for url, title in [("/", "Home"), ("/?name=x", "Home"), ("/runs/a?row=3", "Runs"), ("/runs", "Runs")]:
        assert [place.title for place in PLACES if place.has(url)] == [title]
    assert not [place for place in PLACES if place.has("/runs-of-others")]
