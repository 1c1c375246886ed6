"""The facts of a semaphore, on every store."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from queue import Queue

import permits
import pytest
from permits import PermitStatus
from support import LIMIT, Server, in_thread, is_idle, until, waiters


def test_no_more_than_the_limit_hold_at_once(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 3)
    lock, meeting = threading.Lock(), threading.Barrier(3)
    now, most = 0, 0

    def work() -> None:
        nonlocal now, most
        for number in range(20):
            with semaphore.acquire():
                with lock:
                    now += 1
                    most = max(most, now)
                if number == 0:
                    meeting.wait(LIMIT)
                with lock:
                    now -= 1

    for thread in [in_thread(work) for _ in range(9)]:
        thread.result()
    assert most == 3
    assert is_idle(semaphore)


def test_waiters_are_granted_in_order_of_arrival(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 2)
    order: list[int] = []

    def work(number: int, weight: int) -> None:
        with semaphore.acquire(weight=weight):
            order.append(number)

    first = semaphore.acquire().wait()
    threads = []
    # The second waiter asks for one unit, which is free. It does not overtake the first one, which asks for two.
    for number, weight in enumerate([2, 1, 2, 2]):
        threads.append(in_thread(lambda number=number, weight=weight: work(number, weight)))  # type: ignore[misc]
        waiters(semaphore, number + 1)
    assert semaphore.available() == 1
    first.release()
    for thread in threads:
        thread.result()
    assert order == [0, 1, 2, 3]
    assert is_idle(semaphore)


def test_a_permit_has_slot_token_weight_and_holder(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 4)
    with semaphore.acquire(weight=3, holder="one", label="a note") as one, semaphore.acquire() as other:
        assert (one.semaphore, one.weight, one.holder) == (name, 3, "one")
        assert one.slot != other.slot and one.token < other.token
        assert one.is_held and one.status.value == "held" and one.lost is None
        assert 0 < one.remaining() <= one.lease == 15.0
        found = semaphore.inspect()
        assert (found.limit, found.held) == (4, 4)
        holder = next(holder for holder in found.holders if holder.holder == "one")
        assert (holder.slot, holder.token, holder.label) == (one.slot, one.token, "a note")
    assert one.status is PermitStatus.RELEASED and one.remaining() == 0 and one.weight == 3
    assert is_idle(semaphore)


def test_the_label_of_a_client_is_that_of_its_acquisitions(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/test-program"])
    labelled = permits.connect(url, label="exporter-7", recovery="off")
    with labelled as client, permits.connect(url, recovery="off") as other:
        semaphore, others = client.semaphore(name, 4), other.semaphore(name, 4)
        with semaphore.acquire() as one, semaphore.acquire(label="a note"), semaphore.acquire(label=""), others.acquire():
            labels = {holder.label for holder in semaphore.inspect().holders}
            assert labels == {"exporter-7", "a note", None, "test-program"}
            assert f":{os.getpid()}/" in one.holder


@pytest.mark.parametrize(
    ("argv", "label"),
    [
        (["/srv/worker.py", "secret"], "worker.py"),
        (["/srv/exporter/__main__.py"], "exporter"),
        (["-c"], os.path.basename(sys.executable)),
        ([""], os.path.basename(sys.executable)),
        ([], os.path.basename(sys.executable)),
        (["a\tb\udcff"], "a\ufffdb?"),
        (["x" * 200], "x" * 120),
    ],
)
def test_without_a_label_the_program_is_named(
    argv: list[str], label: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    with permits.connect("memory:") as client, client.semaphore(name, 1).acquire():
        assert client.semaphore(name).inspect().holders[0].label == label


def test_lanes_take_turns(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    order: list[str] = []

    def work(lane: str | None, share: int) -> None:
        with semaphore.acquire(lane=lane, share=share if lane else None):
            order.append(lane or "")

    first = semaphore.acquire(lane="a", lane_limit=1, lane_floor=1).wait()
    threads = []
    lanes = [("batch", 1), ("batch", 1), ("batch", 1), (None, 1), ("interactive", 100), ("interactive", 100)]
    for number, (lane, share) in enumerate(lanes):
        threads.append(in_thread(lambda lane=lane, share=share: work(lane, share)))  # type: ignore[misc]
        waiters(semaphore, number + 1)
    found = semaphore.inspect()
    assert found.lanes == (
        permits.LaneInfo(lane="batch", waiting=3, held=0, limit=None, floor=0, pinned=False),
        permits.LaneInfo(lane="interactive", waiting=2, held=0, limit=None, floor=0, pinned=False),
        permits.LaneInfo(lane=None, waiting=1, held=0, limit=None, floor=0, pinned=False),
        permits.LaneInfo(lane="a", waiting=0, held=1, limit=1, floor=1, pinned=False),
    )
    assert (found.holders[0].lane, {waiter.lane for waiter in found.waiters}) == ("a", {"batch", None, "interactive"})
    first.release()
    for thread in threads:
        thread.result()
    assert order == ["batch", "", "interactive", "interactive", "batch", "batch"]
    assert is_idle(semaphore) and semaphore.inspect().lanes == ()


def test_a_decorator_and_acquire_all_take_a_lane(client: permits.Client, name: str) -> None:
    semaphore, other = client.semaphore(name, 1), client.semaphore(f"{name}/other", 1)

    @semaphore.limit(lane="tenant-7", share=10)
    def lane() -> str | None:
        return semaphore.inspect().holders[0].lane

    assert lane() == "tenant-7"
    with client.acquire_all([semaphore, (other, {"lane": "tenant-8", "share": 2})]):
        assert (semaphore.inspect().holders[0].lane, other.inspect().holders[0].lane) == (None, "tenant-8")
    assert is_idle(semaphore) and is_idle(other)


def told(semaphore: permits.Semaphore) -> permits.TimeoutError:
    """The error of a request whose time is up. On a busy machine a store may be too slow to say why: then once more."""
    for _ in range(30):
        with pytest.raises(permits.TimeoutError) as error:
            semaphore.acquire(timeout=0.5).wait()
        if error.value.inspection is not None:
            return error.value
    raise AssertionError("the store does not say why")


def test_a_timeout_says_why(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire(holder="web-3", label="nightly"):
        error = told(semaphore)
        assert re.fullmatch(r'no permit within 500ms: 1 of 1 held by "nightly" \(web-3\) for \d+ s, 0 waiting', str(error))
        seen = error.inspection
        assert seen is not None and (seen.held, seen.waiting, seen.holders[0].label) == (1, 0, "nightly")
        assert error.retry_after is None and not error.stands_still
    semaphore.pause(3600, "deploy")
    error = told(semaphore)
    assert error.inspection is not None and error.inspection.pause_reason == "deploy"
    assert error.stands_still and 3000 < (error.retry_after or 0) <= 3600
    semaphore.resume()


def test_a_wait_ends_with_its_timeout(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire():
        for timeout in (0.02, timedelta(milliseconds=20)):
            with pytest.raises(permits.TimeoutError) as error:
                semaphore.acquire(timeout=timeout).wait()
            assert isinstance(error.value, TimeoutError) and error.value.waited == 0.02
        with pytest.raises(permits.NoPermitsError):
            semaphore.acquire(timeout=0).wait()
        assert semaphore.inspect().waiting == 0
    semaphore.acquire(timeout=float("inf")).wait().release()
    assert is_idle(semaphore)


def test_another_thread_cancels_a_wait(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire():
        acquire = semaphore.acquire()
        waiting = in_thread(acquire.wait)
        until(lambda: acquire.position == 0)
        acquire.cancel()
        with pytest.raises(permits.CancelledError):
            waiting.result()
        waiters(semaphore, 0)
    before = semaphore.acquire()
    before.cancel()
    with pytest.raises(permits.CancelledError):
        before.wait()
    assert is_idle(semaphore)


def test_a_holder_has_one_permit(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 4)
    with semaphore.acquire(holder="web-3"):
        with pytest.raises(permits.AlreadyHeldError) as error:
            semaphore.acquire(holder="web-3").wait()
        assert error.value.holder == "web-3"


def test_a_part_is_released_and_the_terms_change(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 4)
    with semaphore.acquire(weight=4) as permit:
        permit.release_part(3)
        assert (permit.weight, semaphore.available()) == (1, 3)
        permit.set_lease(timedelta(seconds=60))
        assert permit.lease == 60
        permit.renew()
        assert permit.remaining() > 15
        with pytest.raises(permits.InvalidInputError):
            permit.release_part(1)
        with pytest.raises(permits.InvalidInputError):
            permit.set_lease(0.01)
    with pytest.raises(permits.ReleasedError):
        permit.renew()
    permit.release()
    assert is_idle(semaphore)


def test_a_permit_that_is_not_renewed_is_lost(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    called: list[permits.LostError] = []
    has_called = threading.Event()

    def callback(lost: permits.LostError) -> None:
        called.append(lost)
        has_called.set()

    permit = semaphore.acquire(lease=0.2).wait()
    permit.on_lost(callback)
    assert permit.wait_lost(timeout=0) is None, "it is held"
    permit.auto_renew(False)
    lost = permit.wait_lost()
    assert lost is not None and lost.cause in ("expired", "gone")
    assert not permit.is_held and permit.status is PermitStatus.LOST and permit.lost is not None
    assert has_called.wait(LIMIT) and called[0].cause == lost.cause
    with pytest.raises(permits.LostError):
        permit.release()
    assert permit.lost is not None
    with semaphore.acquire():
        pass


def lose(semaphore: permits.Semaphore, callback: Callable[[permits.LostError], object]) -> None:
    """Loses a permit that is watched."""
    permit = semaphore.acquire().wait()
    permit.on_lost(callback)
    semaphore.revoke(permit.holder)
    assert permit.wait_lost()


def test_a_loss_is_reported_after_the_permit_is_garbage(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    called = threading.Event()
    permit = semaphore.acquire().wait()
    semaphore.revoke(permit.holder)
    assert permit.wait_lost()
    permit.on_lost(lambda lost: called.set())
    del permit
    assert called.wait(LIMIT)


def test_a_callback_that_blocks_delays_no_other(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    called: Queue[int] = Queue()
    let_go = threading.Event()

    def block(lost: permits.LostError) -> None:
        called.put(1)
        let_go.wait(LIMIT)

    lose(semaphore, block)
    assert called.get(timeout=LIMIT) == 1
    for number in (2, 3):
        lose(semaphore, lambda lost: called.put(number))
        assert called.get(timeout=LIMIT / 2) == number
    let_go.set()
    assert is_idle(semaphore)


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_fails_is_logged_and_silences_no_other(
    client: permits.Client, name: str, fault: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    semaphore = client.semaphore(name, 1)
    called = threading.Event()

    def fail(lost: permits.LostError) -> None:
        raise fault

    lose(semaphore, fail)
    until(lambda: any(record.exc_info and record.exc_info[0] is fault for record in caplog.records))
    lose(semaphore, lambda lost: called.set())
    assert called.wait(LIMIT)
    assert is_idle(semaphore)


def test_a_permit_that_is_not_held_has_its_loss_in_the_same_moment(client: permits.Client, url: str, name: str) -> None:
    semaphore = client.semaphore(name, 2)

    with permits.connect(url, recovery="off") as operator:
        for number in range(1000):
            permit = semaphore.acquire(holder=f"{number}").wait()
            operator.semaphore(name, 2).revoke(permit.holder, "maintenance")
            while permit.is_held:
                pass
            assert permit.lost is not None, f"permit {number}: {permit.status}"


def test_a_released_permit_is_not_lost(client: permits.Client, name: str) -> None:
    permit = client.semaphore(name, 1).acquire().wait()
    permit.on_lost(lambda lost: pytest.fail("it is not lost"))
    waiting = in_thread(permit.wait_lost)
    permit.release()
    assert waiting.result() is None and permit.lost is None


def test_a_loss_that_the_release_finds_stays_known(tmp_path: Path, name: str) -> None:
    with Server(tmp_path) as server, permits.connect(server.url, recovery="off", lease=600) as client:
        permit = client.semaphore(name, 1).acquire().wait()
        waits = in_thread(permit.wait_lost)
        server.command("FLUSHALL")
        with pytest.raises(permits.LostError) as error:
            permit.release()
        for found in (permit.lost, permit.wait_lost(), waits.result(LIMIT)):
            assert found is not None and found.cause == error.value.cause == "gone"


def test_a_permit_that_has_ended_begins_no_block(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 2)
    with semaphore.acquire().wait() as permit:
        assert permit.is_held
    with client.acquire_all([semaphore]) as both:
        pass
    handed_over = semaphore.acquire().wait()
    client.release(handed_over.hand_over())
    for ended in (permit, both, handed_over):
        with pytest.raises(permits.ReleasedError, match="the permit was released"), ended:
            pytest.fail("nothing is held")
    lost = semaphore.acquire().wait()
    semaphore.revoke(lost.holder, "maintenance")
    lost.wait_lost()
    with pytest.raises(permits.LostError, match="maintenance"), lost:
        pytest.fail("nothing is held")
    assert is_idle(semaphore)


def test_a_permit_is_not_copied(client: permits.Client, name: str) -> None:
    with client.semaphore(name, 1).acquire() as permit:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"neither copied nor pickled: hand_over\(\)"):
                copied(permit)
        assert permit.is_held


def test_a_revoked_permit_is_lost_with_the_reason(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    waiter = semaphore.acquire(holder="waiter")
    waiting = None
    with pytest.raises(permits.LostError) as error, semaphore.acquire() as permit:
        waiting = in_thread(waiter.wait)
        waiters(semaphore, 1)
        assert semaphore.revoke("waiter", "too late")
        assert semaphore.revoke(permit.holder, "maintenance")
        assert not semaphore.revoke("another")
        lost = permit.wait_lost()
        assert lost is not None and (lost.cause, lost.reason) == ("revoked", "maintenance")
        assert "maintenance" in str(lost)
    assert error.value.cause == "revoked", "the end of the block reports the loss"
    assert waiting is not None
    with pytest.raises(permits.RevokedError) as refused:
        waiting.result()
    assert refused.value.reason == "too late"
    with pytest.raises(ZeroDivisionError), semaphore.acquire() as permit:
        semaphore.revoke(permit.holder)
        permit.wait_lost()
        raise ZeroDivisionError("an error of the block is not replaced")
    assert is_idle(semaphore)


def test_a_handle_is_renewed_and_released(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    handle = semaphore.acquire().wait().hand_over()
    assert client.renew(handle) and client.renew(handle)
    with pytest.raises(permits.NoPermitsError):
        semaphore.acquire(timeout=0).wait()
    assert client.release(handle)
    assert not client.renew(handle)
    assert not client.release(handle)
    assert semaphore.inspect().grants == 1
    assert semaphore.inspect().refused == 1


def test_a_handle_is_adopted_once(client: permits.Client, url: str, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    permit = semaphore.acquire().wait()
    handle = permit.hand_over()
    assert permit.status is PermitStatus.RELEASED and semaphore.available() == 0
    with permits.connect(url, recovery="off") as other:
        with other.adopt(handle) as adopted:
            assert (adopted.token, adopted.slot, adopted.holder) == (permit.token, permit.slot, permit.holder)
        with pytest.raises(permits.GoneError):
            client.adopt(handle)
    with pytest.raises(permits.ReleasedError):
        permit.hand_over()
    assert is_idle(semaphore)


def test_several_are_acquired_all_or_none(client: permits.Client, name: str) -> None:
    wide, narrow = client.semaphore(name, 4), client.semaphore(f"{name}/tenant", 1)
    with client.acquire_all([wide, (narrow, {"label": "note"})]) as both:
        assert [permit.semaphore for permit in both] == [narrow.name, wide.name]
        assert both[wide.name].is_held and both.is_held and both.remaining() > 0 and both.lost is None
        known: tuple[object, ...] = (wide.name, both[0])
        assert all(key in both for key in known)
        other: object = name + "/other"
        assert other not in both
        with pytest.raises(TypeError, match=r"permits\[name\].count"):
            both.count(1)
        assert narrow.inspect().holders[0].label == "note"
        both.renew()
        # The shortest timeout counts, of the requests and of all.
        for own, common in ((None, 0.05), (3600, timedelta(seconds=0.05)), (0.05, 3600), (0.05, None)):
            acquire = client.acquire_all([wide, (narrow, {"timeout": own})], timeout=common)
            with pytest.raises(permits.TimeoutError) as error:
                acquire.wait()
            assert getattr(error.value, "semaphore", None) == narrow.name
        with pytest.raises(permits.TimeoutError):
            client.acquire_all([(narrow, {"timeout": 3600})], timeout=0.05).wait()
        assert wide.inspect().held == 1
    assert is_idle(wide) and is_idle(narrow)
    with pytest.raises(permits.InvalidInputError):
        client.acquire_all([wide, wide]).wait()
    with pytest.raises(permits.InvalidInputError, match='write "weight"'):
        client.acquire_all([(wide, {"wieght": 1})])  # type: ignore[typeddict-unknown-key]
    with pytest.raises(permits.InvalidInputError, match="no permit of .*: the weight is 0") as refused:
        client.acquire_all([wide, (narrow, {"weight": 0})])
    assert vars(refused.value)["semaphore"] == narrow.name
    assert len(client.acquire_all([]).wait()) == 0
    with pytest.raises(permits.LostError), client.acquire_all([wide, narrow]) as both:
        narrow.revoke(both[0].holder)
        both[0].wait_lost()
    assert is_idle(wide) and is_idle(narrow)


def test_a_grant_counts_for_at_least_a_time(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire(at_least=timedelta(minutes=1)):
        pass
    with pytest.raises(permits.CoolingError) as refused:
        semaphore.acquire(timeout=0).wait()
    assert 0 < (refused.value.retry_after or 0) <= 60.001
    seen = semaphore.inspect()
    (cooling,) = seen.holders
    assert (seen.held, seen.cooling) == (1, 1)
    with pytest.raises(TypeError, match="token is the token of a grant, not None"):
        semaphore.revoke_cooling(cooling.holder, None)  # type: ignore[arg-type]
    assert cooling.cooling and semaphore.revoke_cooling(cooling.holder, cooling.token)
    assert not semaphore.revoke_cooling(cooling.holder, cooling.token)
    assert is_idle(semaphore)


def test_a_kept_permit_is_granted_again_without_the_store(server: Server, name: str) -> None:
    with permits.connect(server.url, recovery="off", keep=3600) as client:
        semaphore = client.semaphore(name, 2, keep=timedelta(hours=1))
        for keeping in (semaphore, client.semaphore(name, 2)):
            for _ in range(20):
                with keeping.acquire() as permit:
                    assert permit.is_held
        (kept,) = semaphore.inspect().holders
        assert kept.may_be_kept and semaphore.inspect().grants < 10
        with permits.connect(server.url, recovery="off") as other, other.semaphore(name).acquire(weight=2):
            assert [holder.may_be_kept for holder in semaphore.inspect().holders] == [False], "it was released"
        plain = client.semaphore(name, 2, keep=0)
        before = plain.inspect().grants
        for _ in range(20):
            plain.acquire().wait().release()
        assert plain.inspect().grants == before + 20 and is_idle(plain)


def test_operators_change_the_limit(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 2)
    with pytest.raises(permits.NoLimitError):
        client.semaphore(name).acquire().wait()
    assert semaphore.available() == 2, "of the declaration"
    assert semaphore.declare() == 2
    version = semaphore.inspect().limit_version
    assert semaphore.set_limit(3, version=version) > version
    with pytest.raises(permits.VersionMismatchError) as mismatch:
        semaphore.set_limit(5, version=version)
    assert (mismatch.value.expected, mismatch.value.limit) == (version, 3)
    assert semaphore.adjust_limit(2) == 5 and semaphore.inspect().pinned
    with pytest.raises(permits.LimitOutOfRangeError):
        semaphore.adjust_limit(-5)
    with pytest.raises(permits.LimitMismatchError) as other:
        client.semaphore(name, 2, exactly=True).acquire().wait()
    assert (other.value.required, other.value.stored) == (2, 5)
    with pytest.raises(permits.ExceedsLimitError) as exceeds:
        semaphore.acquire(weight=6).wait()
    assert (exceeds.value.weight, exceeds.value.limit) == (6, 5)
    semaphore.unpin()
    assert client.semaphore(name, 2).declare() == 2
    assert name in client.list()


def test_an_inspection_names_the_authors_of_changes(url: str, name: str) -> None:
    with permits.connect(url, label="deploy 7", recovery="off") as client:
        semaphore = client.semaphore(name)
        assert semaphore.inspect().changes == ()
        semaphore.set_limit(3)
        semaphore.pause()
        semaphore.close_line("moved")
        changes = semaphore.inspect().changes
        assert [change.change for change in changes] == ["line_closed", "paused", "limit_set"]
        assert {change.by for change in changes} == {"deploy 7"}
        assert (changes[0].reason, changes[0].limit, changes[0].holder) == ("moved", None, None)
        assert (changes[2].reason, changes[2].limit) == (None, 3)
        assert all(0 <= change.age < 60 for change in changes)
        assert semaphore.delete()


def test_operators_pause_close_and_delete(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    semaphore.pause()
    waiting = in_thread(semaphore.acquire().wait)
    waiters(semaphore, 1)
    assert semaphore.inspect().paused
    semaphore.resume()
    semaphore.set_alert(30, waiting=100)
    assert semaphore.inspect().alert == permits.Alert(wait=30.0, waiting=100)
    semaphore.set_lane("tenant-7", limit=1)
    assert semaphore.inspect().lanes[-1] == permits.LaneInfo("tenant-7", waiting=0, held=0, limit=1, floor=0, pinned=True)
    assert str(semaphore.inspect().changes[0].text) == "pinned a limit of 1 of lane tenant-7"
    with pytest.raises(permits.InvalidInputError, match="it must be at most 1, the limit of the semaphore"):
        semaphore.set_lane("tenant-8", floor=2)
    semaphore.unpin_lane("tenant-7")
    assert semaphore.inspect().lanes == ()
    permit = waiting.result()
    with pytest.raises(permits.InUseError) as in_use:
        semaphore.delete()
    assert in_use.value.held == 1
    waiting = in_thread(semaphore.acquire().wait)
    waiters(semaphore, 1)
    semaphore.close_line("moved")
    with pytest.raises(permits.LineClosedError) as closed:
        waiting.result()
    assert closed.value.reason == "moved" == semaphore.inspect().closed
    assert isinstance(closed.value, permits.NotNowError)
    semaphore.open_line()
    permit.release()
    assert semaphore.delete() and not semaphore.delete()


def test_a_pause_with_an_end_says_when(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    semaphore.declare()
    semaphore.pause(3600, "429")
    with pytest.raises(permits.PausedError) as paused:
        semaphore.acquire(timeout=0).wait()
    assert paused.value.retry_after is not None and 3000 < paused.value.retry_after <= 3600
    seen = semaphore.inspect()
    assert (seen.paused, seen.pause_reason) == (True, "429") and 3000 < (seen.pause_remaining or 0) <= 3600
    semaphore.resume()
    with pytest.raises(permits.InvalidInputError):
        semaphore.pause(0)


def test_a_grant_counts_for_what_it_cost(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 10)
    with semaphore.acquire(weight=8, at_least=3600) as permit:
        permit.count(3)
    assert semaphore.available() == 7
    with semaphore.acquire() as permit, pytest.raises(permits.InvalidInputError):
        permit.count(1)


def test_the_newest_request_of_a_key_waits(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire():
        first = in_thread(semaphore.acquire(supersede="main").wait)
        waiters(semaphore, 1)
        second = in_thread(semaphore.acquire(supersede="main").wait)
        with pytest.raises(permits.SupersededError) as superseded:
            first.result()
        assert superseded.value.key == "main"
    second.result().release()
    assert sum(semaphore.inspect().waits.numbers) == 1


def test_a_permit_is_held_no_longer_than_asked(client: permits.Client, name: str) -> None:
    permit = client.semaphore(name, 1).acquire(max_hold=0.2).wait()
    until(lambda: permit.status == permits.PermitStatus.LOST)
    with pytest.raises(permits.LostError) as lost:
        permit.release()
    assert lost.value.cause == "held_too_long"


def test_closing_ends_waits_and_permits(url: str, name: str) -> None:
    client = permits.connect(url, recovery="off")
    semaphore = client.semaphore(name, 1)
    permit = semaphore.acquire().wait()
    acquire = semaphore.acquire()
    waiting = in_thread(acquire.wait)
    until(lambda: acquire.position == 0)
    client.close()
    with pytest.raises(permits.ClosedError):
        waiting.result()
    assert permit.lost is not None and permit.lost.cause == "closed"
    with pytest.raises(permits.ClosedError):
        semaphore.acquire().wait()
    client.close()
    with permits.connect(url, recovery="off") as other:
        other.semaphore(name, 1).acquire(timeout=0).wait().release()


def test_an_acquisition_serves_once(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    acquire = semaphore.acquire()
    with acquire:
        pass
    with pytest.raises(RuntimeError, match="waited for before"):
        acquire.wait()
    unused = semaphore.acquire()
    with pytest.warns(RuntimeWarning, match=r"nothing was acquired: write `with semaphore.acquire\(\)"):
        del unused
    assert is_idle(semaphore)


def test_what_is_not_a_permit_says_how_to_get_one(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    acquire, several = semaphore.acquire(), client.acquire_all([semaphore])

    def refuses(value: object, call: str) -> None:
        names = {name for name in dir(permits.Permit) if name[0] != "_"} - set(dir(value))
        assert {"slot", "token", "is_held", "release", "renew"} <= names
        for name in names:
            with pytest.raises(AttributeError, match=re.escape(f"`permit = {call}.wait()`")):
                getattr(value, name)

    refuses(semaphore, "semaphore.acquire()")
    refuses(acquire, "semaphore.acquire()")
    refuses(several, "client.acquire_all(...)")
    with pytest.raises(TypeError, match="write `with"):
        bool(acquire)
    # Type checkers know that there is no such attribute.
    with pytest.raises(AttributeError):
        acquire.slot  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        semaphore.release()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="write `with"):
        with semaphore:  # type: ignore[attr-defined]
            pass

    async def block() -> None:
        async with semaphore:  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError, match="write `with"):
        asyncio.run(block())
    with pytest.warns(RuntimeWarning):
        del acquire, several
    assert is_idle(semaphore)


def test_a_permit_that_is_garbage_is_released(
    client: permits.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    semaphore = client.semaphore(name, 1)
    permit = semaphore.acquire().wait()
    with pytest.warns(ResourceWarning, match="was never released"):
        del permit
    semaphore.acquire(timeout=0).wait().release()
    # A warning may be an error, which has its traceback, and that has the permit.
    permit = semaphore.acquire().wait()
    errors: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: errors.append(unraisable.exc_value))
        del permit
        gc.collect()
    assert [type(error) for error in errors] == [ResourceWarning]
    semaphore.acquire(timeout=0).wait().release()


def test_a_function_is_limited(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 4)

    @semaphore.limit
    def plain(number: int) -> int:
        """Its documentation."""
        return number + semaphore.available()

    @semaphore.limit(weight=3, timeout=1)
    def heavy() -> int:
        return semaphore.available()

    assert plain(10) == 13 and heavy() == 1
    assert (plain.__name__, plain.__doc__) == ("plain", "Its documentation.")

    def generator() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError):
        semaphore.limit(generator)

    async def work() -> int:
        return semaphore.available()

    class Work:
        async def __call__(self) -> int:
            return semaphore.available()

    assert asyncio.run(semaphore.limit(Work())()) == 3
    with pytest.raises(TypeError, match="is not async, and has returned <coroutine .*: decorate an async function"):
        semaphore.limit(lambda: work())()  # type: ignore[unused-coroutine]
    with pytest.raises(permits.InvalidInputError, match='write "weight"'):
        semaphore.limit(wieght=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"`client.semaphore\('.*', 3\)`"):
        semaphore.limit(3)  # type: ignore[call-overload]
    assert is_idle(semaphore)
