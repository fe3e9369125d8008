"""One session: what was sent, what was acknowledged, and what the worker must therefore be holding."""

from rota.control.sessions import Session
from rota.core.decide.leases import Offer
from rota.core.ids import make_fence
from rota.wire.frames import CoordinatorFrame, WorkerFrame


def begun() -> Session:
    """A session whose welcome has been said and whose worker holds nothing."""
    session = Session(1, "1.1", ("t", "w"), "i1")
    assert said(session).number == 1
    session.hear(came(1, ack=1))
    session.adopt(())
    return session


def offer(number: int) -> Offer:
    return Offer("t", "r", 0, "x", make_fence(1, number), 1, "command", b"", b"", 0, 30_000)


def came(number: int, **fields: object) -> WorkerFrame:
    return WorkerFrame(tenant="t", worker="w", incarnation="i1", epoch=1, number=number, session="1.1", **fields)


def said(session: Session) -> CoordinatorFrame:
    frame = session.say(1, 5_000, 30_000)
    assert frame is not None
    return frame


def holds(*numbers: int) -> dict[str, int]:
    """What a worker says that holds these leases."""
    checksum = 0
    for number in numbers:
        checksum ^= make_fence(1, number)
    return {"count": len(numbers), "checksum": checksum}


def test_the_first_frame_is_the_welcome_and_asks_for_everything():
    session = Session(1, "1.1", ("t", "w"), "i1")
    welcome = said(session)
    assert (welcome.number, welcome.ack, welcome.want_complete) == (1, 0, True)
    assert session.say(1, 5_000, 30_000) is None


def test_only_the_next_number_is_next():
    session = begun()
    assert [session.is_next(came(number)) for number in (0, 1, 2, 3)] == [False, False, True, False]


def test_a_start_counts_as_held_when_the_frame_that_carried_it_is_acknowledged():
    session = begun()
    session.starts.append(offer(1))
    assert session.is_on_its_way(make_fence(1, 1))
    frame = said(session)
    assert session.is_on_its_way(make_fence(1, 1))
    assert session.agrees(came(2, ack=1, **holds()))
    session.hear(came(2, ack=frame.number))
    assert not session.is_on_its_way(make_fence(1, 1))
    assert session.agrees(came(3, **holds(1)))
    assert not session.agrees(came(3, **holds()))


def test_a_stop_counts_when_it_is_acknowledged():
    session = begun()
    session.starts.append(offer(1))
    session.hear(came(2, ack=said(session).number))
    session.stops.append(make_fence(1, 1))
    frame = said(session)
    assert session.agrees(came(3, **holds(1)))
    session.hear(came(3, ack=frame.number))
    assert session.agrees(came(3, **holds()))
    assert not session.knows(make_fence(1, 1))


def test_a_start_and_its_stop_acknowledged_together_leave_nothing():
    session = begun()
    session.starts.append(offer(1))
    said(session)
    session.stops.append(make_fence(1, 1))
    session.hear(came(2, ack=said(session).number))
    assert session.agrees(came(2, **holds()))


def test_a_start_that_is_taken_back_before_it_was_said_is_not_said():
    session = begun()
    session.starts += [offer(1), offer(2)]
    session.stops += [make_fence(1, 1), make_fence(1, 1)]
    frame = said(session)
    assert [each.fence for each in frame.start] == [make_fence(1, 2)]
    assert frame.stop == (make_fence(1, 1),)


def test_an_older_acknowledgement_takes_nothing_back():
    session = begun()
    session.starts.append(offer(1))
    session.hear(came(2, ack=said(session).number))
    session.hear(came(3, ack=1))
    assert session.agrees(came(3, **holds(1)))


def test_a_report_of_the_end_lets_go_of_the_lease_once():
    session = begun()
    session.starts.append(offer(1))
    session.hear(came(2, ack=said(session).number))
    session.drop(make_fence(1, 1))
    session.drop(make_fence(1, 1))
    assert session.agrees(came(3, **holds()))


def test_a_list_in_parts_is_whole_with_its_last_part_and_leaves_nothing_for_the_next():
    session = begun()
    assert session.collect(came(2, held=(1, 2), more=True)) is None
    assert session.collect(came(3, held=(3,))) == (1, 2, 3)
    assert session.collect(came(4, held=())) == ()


def test_from_a_complete_list_on_the_count_is_the_workers_own():
    session = begun()
    session.want_complete = True
    session.adopt((make_fence(1, 4), make_fence(1, 5)))
    assert session.agrees(came(2, **holds(4, 5)))
    assert session.is_ready
    assert not session.want_complete


def test_a_start_on_its_way_survives_a_list_that_was_made_before_it_was_read():
    session = begun()
    session.starts.append(offer(1))
    frame = said(session)
    session.hear(came(2, ack=1))
    session.adopt(())
    assert session.is_on_its_way(make_fence(1, 1))
    session.hear(came(3, ack=frame.number))
    assert session.agrees(came(3, **holds(1)))


def test_the_acknowledgement_says_what_is_durable_and_heard_says_what_has_come():
    session = begun()
    session.acknowledge(1)
    assert (said(session).ack, session.durable) == (1, 1)
    session.hear(came(2))
    frame = said(session)
    assert (frame.heard, frame.ack) == (2, 1)
    assert session.say(1, 5_000, 30_000) is None
    session.acknowledge(2)
    assert said(session).ack == 2


def test_an_acknowledgement_never_goes_back():
    session = begun()
    session.acknowledge(5)
    session.acknowledge(3)
    assert said(session).ack == 5
