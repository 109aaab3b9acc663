//! Traces of single TCP connections under scripted losses on one 10 Mbit/s, 10 ms link, judged against the RFCs and
//! compared with `golden/tcp-*.txt`. `BANDMASTER_BLESS=1` rewrites the files.
//!
//! A trace is the sender's view: segments when their transmission starts, acknowledgements when they arrive. Offsets
//! count from the first payload byte.

use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::capture::{CapturedPacket, CapturedTcp, CapturedTransport};
use bandmaster_core::losses::{LossPlan, Losses};
use bandmaster_core::report::RunRecord;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

const MSS: u64 = 1000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ECE: u8 = 64;
const CWR: u8 = 128;
const MS: f64 = 1e6;

// ------------------------------------------------------------------------------------------------------- cases

/// RFC 5681 section 3.1 (at most one SMSS per acknowledgement) and 4.2 (every second segment, or the timeout).
#[test]
fn slow_start_with_delayed_acks() {
    let trace =
        Case { tcp: "byte-counting = false", ..Case::new("slow-start") }.iw("1pkt").stop_at("200ms").check();
    let data: Vec<&Row> = trace.data().collect();
    let first_ack = trace.acks().nth(1).expect("an ACK of the first segment");
    // The first segment is alone: its ACK waits for the 40 ms of `delayed-ack-timeout`.
    let waited = first_ack.made_at - (data[0].at + trace.transmission(data[0]) + 10.0);
    assert!((waited - 40.0).abs() < 0.01, "lone segment acknowledged after {waited} ms");
    let acks: Vec<&Row> = trace.acks().skip(1).filter(|a| a.at < 200.0).collect();
    for pair in acks.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        assert!(after.ack - before.ack <= 2 * MSS, "at least every second segment: {after:?}");
        assert!(after.cwnd - before.cwnd <= 1.001, "at most one segment per ACK: {after:?}");
    }
    let last = acks.last().expect("ACKs");
    assert!((last.cwnd - (1 + acks.len()) as f64).abs() < 0.001, "one segment per ACK: {last:?}");
}

/// RFC 5681 section 3.2, RFC 6675 section 5: the third duplicate retransmits, the window halves, one loss episode.
#[test]
fn single_loss_with_sack() {
    let trace = Case { tcp: NO_QUEUE, drops: &[5], ..Case::new("single-loss-sack") }.size("30000B").check();
    let third = trace.duplicates(4 * MSS)[2];
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [4 * MSS]);
    assert!((again[0].at - third.at).abs() < 0.001, "{:?} answers {third:?}", again[0]);
    trace.assert_halved(third, 4 * MSS);
    trace.assert_complete(30 * MSS);
}

/// RFC 6675: only the holes are sent again, each once, in order.
#[test]
fn three_holes_with_sack() {
    let trace =
        Case { tcp: NO_QUEUE, drops: &[4, 6, 9], ..Case::new("three-holes-sack") }.size("30000B").check();
    let again: Vec<u64> = trace.retransmissions().iter().map(|r| r.seq).collect();
    assert_eq!(again, [3 * MSS, 5 * MSS, 8 * MSS]);
    let widest = trace.acks().map(|a| a.sack.len()).max();
    assert_eq!(widest, Some(3), "three islands at once");
    trace.assert_complete(30 * MSS);
}

/// RFC 6675 section 5, NextSeg: the last three segments are lost with one in the middle. Nothing above them has come, so rule 4
/// sends the last again; its SACK makes the others those of rule 3, which the rescue before does not forbid.
#[test]
fn rescue_shows_what_else_was_lost() {
    let trace = Case { tcp: NO_QUEUE, drops: &[8, 17, 18, 19], ..Case::new("rescue") }.size("19000B").check();
    let again: Vec<u64> = trace.retransmissions().iter().map(|r| r.seq / MSS).collect();
    assert_eq!(again, [7, 18, 16, 17]);
    assert_eq!(trace.metric("rtos"), 0.0);
    trace.assert_complete(19 * MSS);
}

/// RFC 8985 section 6.2, step 5: a retransmission is lost when something sent after it is delivered. Here that is
/// new data. RFC 6675 waits for the timer.
#[test]
fn a_lost_retransmission_is_found_by_time() {
    let rules = [("lost-again-rfc6675", NO_QUEUE), ("lost-again-rack", RACK)];
    let [counts, times] =
        rules.map(|(name, tcp)| Case { tcp, drops: &[5, 17], ..Case::new(name) }.size("30000B").check());
    assert_eq!([&counts, &times].map(|trace| trace.metric("rtos")), [1.0, 0.0]);
    let sent = |trace: &Trace| trace.data().filter(|r| r.seq == 4 * MSS).map(|r| r.at).collect::<Vec<_>>();
    let [slow, fast] = [&counts, &times].map(sent);
    assert_eq!((slow.len(), fast.len()), (3, 3));
    let later = times.data().find(|r| r.at > fast[1] && r.seq > 4 * MSS).expect("new data");
    let tells = |ack: &&Row| ack.sack.iter().any(|&(start, end)| start <= later.seq && later.seq < end);
    let told = times.acks().find(tells).expect("its SACK");
    assert!((fast[2] - told.at).abs() < 0.001, "{} ms, not at {told:?}", fast[2]);
    assert!(slow[2] > fast[2] + 150.0, "{} ms by the timer", slow[2]);
    times.assert_complete(30 * MSS);
}

/// RFC 8985 section 6.2, steps 4 and 5: two SACKed segments above a hole are too few, so that it may still arrive for a quarter of the
/// least round-trip time. RFC 6675 waits for the timer.
#[test]
fn the_reordering_timer_finds_a_loss_near_the_tail() {
    let trace = Case { tcp: RACK, drops: &[8], ..Case::new("rack-reordering") }.size("10000B").check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [7]);
    assert_eq!(trace.metric("rtos"), 0.0);
    // Ten segments go out together: each is sent when the handshake ends.
    let open = trace.acks().next().expect("a SYN-ACK").at;
    let latest = trace.acks().filter(|a| a.at < again[0].at).last().expect("acknowledgements");
    // The SYN's round trip is the least; timestamps are whole microseconds.
    let deadline = open + (latest.at - open) + open / 4.0;
    assert!((again[0].at - deadline).abs() < 0.01, "{:?}, not {deadline} ms", again[0]);
    trace.assert_complete(10 * MSS);
}

/// RFC 8985 section 6.2, steps 3 and 4: an acknowledgement is lost, and the next one tells of two islands at once, the upper first
/// (RFC 2018). Segments of one acknowledgement are not reordered, so three SACKed segments make the holes lost without a wait.
#[test]
fn a_lost_acknowledgement_is_no_reordering() {
    let drops = &[35, 37, 39];
    // Of the packets that come back the twentieth alone is lost: the one that answers segment 38.
    let case = Case { tcp: RACK, drops, loss_back: 0.01, ..Case::new("rack-lost-ack") }.size("42000B");
    let trace = case.check();
    let islands: Vec<&Row> = trace.acks().filter(|a| !a.sack.is_empty()).collect();
    let [first, second, third] = [36, 38, 40].map(|segment| (MSS * (segment - 1), MSS * segment));
    assert_eq!(islands[0].sack, [first]);
    assert_eq!(islands[1].sack, [third, second, first]);
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [34, 36, 38]);
    assert!((again[0].at - islands[1].at).abs() < 0.001, "{:?} answers {:?}", again[0], islands[1]);
    trace.assert_complete(42 * MSS);
}

/// RFC 8985 section 6.3: after a timeout the first segment is lost, and what was sent more than a round trip ago. RFC 5681 section
/// 4.3: when the retransmission of a timeout is lost, the window falls once more.
#[test]
fn a_retransmission_lost_after_a_timeout_lowers_the_window_again() {
    // All ten are lost; of the two that the first acknowledgement after the timeout lets go, the first again.
    let drops = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12];
    let rules = [("timeout-lost-again-rfc6675", NO_QUEUE), ("timeout-lost-again-rack", RACK)];
    let [counts, times] =
        rules.map(|(name, tcp)| Case { tcp, drops, ..Case::new(name) }.size("30000B").check());
    assert_eq!([&counts, &times].map(|trace| trace.metric("rtos")), [2.0, 1.0]);
    let again: Vec<&Row> = times.retransmissions().into_iter().filter(|r| r.seq == MSS).collect();
    assert_eq!(again.len(), 2);
    let told = times.acks().find(|a| !a.sack.is_empty()).expect("a SACK");
    assert!((again[1].at - told.at).abs() < 0.001, "{:?}, not at {told:?}", again[1]);
    assert_eq!(told.cwnd, 2.0, "half of what is in flight, two segments at least: {told:?}");
    times.assert_complete(30 * MSS);
}

/// `quick-acks`: the first segments are acknowledged at once, later ones every other.
#[test]
fn quick_acks_come_at_once() {
    let trace =
        Case { tcp: "quick-acks = \"2pkt\"", ..Case::new("quick-acks") }.iw("1pkt").size("9000B").check();
    let delays: Vec<f64> = trace
        .acks()
        .skip(1)
        .take(2)
        .map(|ack| {
            let answered = trace.data().find(|r| r.seq + r.len == ack.ack).expect("a segment");
            ack.made_at - (answered.at + trace.transmission(answered) + 10.0)
        })
        .collect();
    assert!(delays.iter().all(|delay| *delay < 0.01), "{delays:?}");
    let acked: Vec<u64> = trace.acks().skip(1).map(|a| a.ack / MSS).collect();
    assert_eq!(acked[..3], [1, 2, 4], "then every other");
}

/// `partial-ack-sends`: two late losses that too few SACKs tell of fill RFC 6675's pipe, so that the window sends nothing for a
/// partial acknowledgement, and the timer must run out. ns-3 sends a segment for each, and repairs all seven early losses.
#[test]
fn partial_acks_keep_a_recovery_going() {
    let drops = &[3, 4, 5, 6, 7, 8, 9, 14, 15];
    let rules = [
        ("partial-acks-wait", "recovery = \"prr\"\nflight-size = \"pipe\""),
        ("partial-acks-send", "recovery = \"prr\"\nflight-size = \"pipe\"\npartial-ack-sends = true"),
    ];
    let [waits, sends] =
        rules.map(|(name, tcp)| Case { tcp, drops, ..Case::new(name) }.size("30000B").check());
    // What is sent again before the timeout of 200 ms.
    let early = |trace: &Trace| -> Vec<u64> {
        let before = |row: &&&Row| row.at < 250.0;
        trace.retransmissions().iter().filter(before).map(|r| r.seq / MSS).collect()
    };
    assert_eq!((early(&waits), early(&sends)), (vec![2], (2..9).collect()));
    let partial = sends.acks().find(|a| a.ack > 2 * MSS).expect("a partial acknowledgement");
    assert_eq!(sends.answers(partial).count(), 1);
}

/// A partial acknowledgement when all has been sent, the FIN too, has nothing new to send.
#[test]
fn partial_acks_after_the_fin_send_nothing_new() {
    let case = Case { tcp: "partial-ack-sends = true", drops: &[20, 25], ..Case::new("partial-acks-fin") };
    let trace = case.size("30000B").trace();
    // The last is the rescue.
    assert_eq!(trace.retransmissions().iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [19, 24, 29]);
    trace.assert_complete(30 * MSS);
}

/// Every recovery's first partial acknowledgement restarts an impatient timer: twice three losses, each repaired in 63 ms.
#[test]
fn an_impatient_timer_is_patient_once_per_recovery() {
    let tcp = "sack = false\nmin-rto = \"60ms\"\nrto-floor = \"rto\"\nimpatient-timer = true";
    let case = Case { tcp, drops: &[3, 5, 7, 43, 45, 47], ..Case::new("impatient-twice") };
    let trace = case.size("70000B").trace();
    assert_eq!((trace.retransmissions().len(), trace.metric("rtos")), (6, 0.0));
    trace.assert_complete(70 * MSS);
}

/// RFC 6582 section 4: five losses take a round trip of 21 ms each, more than the timeout of 60 ms; the impatient variant
/// restarts the timer for the first partial acknowledgement only, the other for each.
#[test]
fn an_impatient_timer_ends_a_long_recovery() {
    let drops = &[3, 5, 7, 9, 10];
    let rules = [
        ("slow-but-steady", "sack = false\nmin-rto = \"60ms\"\nrto-floor = \"rto\""),
        ("impatient", "sack = false\nmin-rto = \"60ms\"\nrto-floor = \"rto\"\nimpatient-timer = true"),
    ];
    let [steady, impatient] =
        rules.map(|(name, tcp)| Case { tcp, drops, ..Case::new(name) }.size("30000B").check());
    assert_eq!((steady.metric("rtos"), impatient.metric("rtos")), (0.0, 1.0));
    let first = impatient.acks().find(|a| a.ack > 2 * MSS).expect("a partial acknowledgement");
    let timeout =
        impatient.retransmissions().into_iter().find(|r| r.at > first.at + 59.0).expect("a timeout");
    assert!((timeout.at - first.at - 60.0).abs() < 0.5, "{timeout:?} after {first:?}");
}

/// RFC 6298 (5.3): the last segment has no successor to report it, so the timer, restarted by the last ACK of new
/// data, must run out: 1 s by the floor of section 2.4.
#[test]
fn tail_loss_waits_for_the_timer() {
    let trace = Case { tcp: RFC_RTO, drops: &[10], ..Case::new("tail-loss") }.size("10000B").check();
    let last_progress = trace.acks().filter(|a| a.ack <= 9 * MSS).map(|a| a.at).fold(0.0, f64::max);
    let again = trace.retransmissions();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].seq, again[0].flags & FIN), (9 * MSS, FIN));
    assert!((again[0].at - last_progress - 1000.0).abs() < 0.01, "{:?} after {last_progress}", again[0]);
    assert_eq!(trace.metric("rtos"), 1.0);
    trace.assert_complete(10 * MSS);
}

/// RFC 8985 section 7: the last two segments are lost. Two round trips after the last acknowledgement the last one is sent again
/// (7.3). Its SACK shows that the other is lost too (7.4.1). Without a probe the timer must run out.
#[test]
fn a_probe_shows_a_lost_tail() {
    let rules = [("tail-no-probe", RACK), ("tail-probe", TLP)];
    let [waits, probes] =
        rules.map(|(name, tcp)| Case { tcp, drops: &[9, 10], ..Case::new(name) }.size("10000B").check());
    assert_eq!([&waits, &probes].map(|trace| trace.metric("rtos")), [1.0, 0.0]);
    let again = probes.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [9, 8]);
    let (last, srtt) = probes.before(again[0]);
    assert!((again[0].at - last.at - 2.0 * srtt).abs() < 0.01, "{:?} after {last:?}, SRTT {srtt}", again[0]);
    let told = probes.acks().find(|ack| !ack.sack.is_empty()).expect("a SACK of the probe");
    assert_eq!(told.sack, [(9 * MSS, 10 * MSS + 1)]);
    assert!((again[1].at - told.at).abs() < 0.001, "{:?} answers {told:?}", again[1]);
    assert!(waits.retransmissions()[0].at > again[1].at + 100.0, "the timer is slower");
    for trace in [&waits, &probes] {
        trace.assert_complete(10 * MSS);
    }
}

/// RFC 8985 section 7.2: to the wait for a lone segment the longest delay of an acknowledgement is added. Section 7.4.2: the probe
/// repairs the only loss, which no acknowledgement shows; the first of later data lowers the window, once.
#[test]
fn a_probe_that_repairs_the_only_loss_lowers_the_window_once() {
    let case = Case { tcp: TLP, drops: &[10], ..Case::new("probe-repairs") };
    let case = Case { flow: "on = \"25ms\"\noff = \"225ms\"\nstop = \"550ms\"".to_owned(), ..case };
    let trace = case.check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [9]);
    assert_eq!(trace.metric("rtos"), 0.0);
    let (last, srtt) = trace.before(again[0]);
    assert!((again[0].at - last.at - 2.0 * srtt - 40.0).abs() < 0.01, "{:?}, SRTT {srtt}", again[0]);
    let repaired = trace.acks().find(|ack| ack.ack == 10 * MSS).expect("an acknowledgement of the probe");
    assert_eq!(repaired.cwnd, 10.0, "not yet");
    // Ten segments are in flight again.
    let later: Vec<f64> = trace.acks().filter(|ack| ack.ack > 10 * MSS).map(|ack| ack.cwnd).collect();
    assert!((5.0..5.5).contains(&later[0]), "{later:?}");
    assert!(later.windows(2).all(|pair| pair[0] <= pair[1]), "{later:?}");
}

/// RFC 8985 section 7.4.2, case 1: only the acknowledgement of the last segment is lost. A DSACK tells so, and the window stays. Without
/// it the sender must take the segment for lost.
#[test]
fn a_duplicate_shows_that_a_probe_was_needless() {
    const LONE: &str =
        "cwnd-clamp = \"19pkt\"\ndelayed-ack = \"1pkt\"\nloss-detection = \"rack\"\ntail-loss-probe = true";
    let cases =
        [("probe-needless", LONE.to_owned()), ("probe-needless-dsack", format!("{LONE}\ndsack = true"))];
    let [silent, reports] = cases.map(|(name, tcp)| {
        // Of the packets that come back the twentieth alone is lost.
        let case = Case { tcp: tcp.leak(), loss_back: 0.01, window: "19pkt", ..Case::new(name) };
        let flow = "on = \"25ms\"\noff = \"225ms\"\nstop = \"400ms\"".to_owned();
        Case { flow, ..case }.check()
    });
    for trace in [&silent, &reports] {
        assert_eq!(trace.retransmissions().iter().map(|r| r.seq / MSS).collect::<Vec<_>>(), [18]);
        assert_eq!(trace.metric("rtos"), 0.0);
    }
    let window = |trace: &Trace| trace.acks().find(|ack| ack.ack > 19 * MSS).expect("later data").cwnd;
    assert!((9.0..10.0).contains(&window(&silent)), "half of 19: {}", window(&silent));
    assert_eq!(window(&reports), 19.0);
    let answer = reports.acks().find(|ack| ack.ack == 19 * MSS).expect("an answer to the probe");
    assert_eq!(answer.sack, [(18 * MSS, 19 * MSS)]);
}

/// RFC 5682 section 3.1: the link stands still for longer than the timeout. The first acknowledgement lets two new segments go, the next
/// one is of data that was sent before the timeout: nothing else is sent again, and the window is what it was.
#[test]
fn a_timeout_by_a_delay_is_undone() {
    const SPIKE: &str = "capacity = { period = \"30s\", steps = [{ at = \"0s\", rate = \"10mbit\" }, \
                         { at = \"60ms\", rate = \"8kbit\" }, { at = \"400ms\", rate = \"10mbit\" }] }";
    for found in ["rfc6675", "rack"] {
        let run = |f_rto: bool| {
            let tcp = format!("cwnd-clamp = \"10pkt\"\nloss-detection = \"{found}\"\nf-rto = {f_rto}");
            Case { tcp: tcp.leak(), link: SPIKE, ..Case::new("delay-spike") }.size("60000B").trace()
        };
        let [plain, forward] = [false, true].map(run);
        assert_eq!([&plain, &forward].map(|trace| trace.metric("rtos")), [1.0, 1.0], "{found}");
        assert!(
            plain.retransmissions().len() >= 9,
            "{found}: of ten in flight {}",
            plain.retransmissions().len()
        );
        assert_eq!(forward.retransmissions().len(), 1, "{found}");
        let timeout = forward.retransmissions()[0];
        let acks: Vec<&Row> = forward.acks().filter(|ack| ack.at > 400.0 && ack.ack > timeout.seq).collect();
        assert!(acks[0].cwnd <= 3.0 && acks[1].cwnd >= 10.0, "{found}: {} {}", acks[0].cwnd, acks[1].cwnd);
        let done = |trace: &Trace| trace.acks().last().map_or(0.0, |ack| ack.at);
        assert!(done(&forward) < done(&plain), "{found}: {} {}", done(&forward), done(&plain));
        for trace in [&plain, &forward] {
            trace.assert_complete(60 * MSS);
        }
    }
}

/// RFC 5682 section 3.1, step 3a: the segments after the first are lost, so that the new data is all that arrives.
#[test]
fn a_timeout_after_losses_is_none_that_f_rto_undoes() {
    let drops = &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
    let traces = ["", "\nf-rto = true"].map(|f_rto| {
        let tcp = format!("{RACK}{f_rto}");
        Case { tcp: tcp.leak(), drops, ..Case::new("f-rto-losses") }.size("60000B").trace()
    });
    for trace in &traces {
        assert_eq!(trace.metric("rtos"), 1.0);
        assert_eq!(
            trace.retransmissions().iter().map(|r| r.seq / MSS).collect::<Vec<_>>(),
            (10..20).collect::<Vec<_>>()
        );
        trace.assert_complete(60 * MSS);
    }
    let timeout = traces[1].retransmissions()[0].at;
    let next: Vec<u64> = traces[1].data().filter(|r| r.at > timeout).take(2).map(|r| r.seq / MSS).collect();
    assert_eq!(next, [20, 21], "new data before the other nine");
}

/// With ticks a probe waits as Linux's does: 2 ms more than two round trips, in whole ticks, of which that under way does not count.
#[test]
fn a_probe_waits_for_whole_ticks() {
    let tcp =
        "cwnd-clamp = \"10pkt\"\nloss-detection = \"rack\"\ntail-loss-probe = true\ntimer-tick = \"4ms\"";
    let trace = Case { tcp, drops: &[9, 10], ..Case::new("probe-ticks") }.size("10000B").trace();
    let probe = trace.retransmissions()[0];
    let (last, srtt) = trace.before(probe);
    let ticks = |time: f64| (time / 4.0).ceil() * 4.0;
    let due = ticks(last.at + ticks(2.0 * srtt + 2.0));
    assert!((probe.at - due).abs() < 0.01, "{probe:?}, not {due} ms");
    assert_eq!(trace.metric("rtos"), 0.0);
}

/// RFC 6298 section 3 (Karn): without timestamps, what was sent again is not measured. The last timeout is that of round trips
/// on an idle link: the smoothed time and the floor of 200 ms.
#[test]
fn without_timestamps_retransmissions_are_not_measured() {
    let tcp = "timestamps = false\ncwnd-clamp = \"2pkt\"\ndelayed-ack = \"1pkt\"";
    let trace = Case { tcp, drops: &[10, 11, 41], ..Case::new("no-timestamps") }.size("40000B").check();
    let again = *trace.retransmissions().last().expect("a timeout");
    let progress =
        trace.acks().filter(|a| a.at < again.at && a.sack.is_empty()).map(|a| a.at).fold(0.0, f64::max);
    // 20 ms, a segment and an acknowledgement on the link, and of the SYN's shorter time what eighteen samples have left.
    let timeout = 200.0 + 20.0 + (1040.0 + 40.0) * 8e-4;
    let waited = again.at - progress;
    assert!((timeout - 0.2..timeout).contains(&waited), "{waited} ms instead of {timeout}");
    trace.assert_complete(40 * MSS);
}

/// `rtt-samples`: a window of twelve segments, two to an acknowledgement. The timed segment of a round trip leaves the variance
/// of the handshake larger than the samples of six acknowledgements do, so its timer runs longer. RFC 6298 recomputes the
/// timeout from the times in the trace; each acknowledgement measures the older of its two segments.
#[test]
fn each_ack_gives_a_sample_or_each_round_trip_does() {
    const SHORT: &str = "timestamps = false\ndelayed-ack-timeout = \"100ms\"\nmin-rto = \"1ms\"\n\
                         rto-floor = \"rto\"\nreceive-buffer = \"12000B\"\nwindow-scaling = false";
    let cases = [
        ("each-round-trip", "samples-each-round-trip", SHORT.to_owned()),
        ("each-ack", "samples-each-ack", format!("{SHORT}\nrtt-samples = \"each-ack\"")),
    ];
    let waits = cases.map(|(samples, name, tcp)| {
        let case = Case { tcp: tcp.leak(), drops: &[61], ..Case::new(name) };
        let trace = case.size("61000B").check();
        let again = trace.retransmissions();
        assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [60 * MSS], "{samples}");
        let acks: Vec<&Row> = trace.acks().filter(|a| a.at < again[0].at).collect();
        // A segment leaves TCP with the first acknowledgement whose windows reach its end; the link may take it later.
        let sent = |seq: u64| {
            let reach = |ack: &Row| ack.ack as f64 + (ack.cwnd * MSS as f64).min(ack.window as f64);
            acks.iter().find(|a| reach(a) >= (seq + MSS) as f64).expect("an acknowledgement").at
        };
        // The handshake begins at 0.
        let (mut srtt, mut variation) = (acks[0].at, acks[0].at / 2.0);
        let (mut covered, mut timed, mut count) = (0, 0, 1);
        for ack in acks.iter().skip(1).filter(|ack| ack.ack > 0) {
            let sample = match samples {
                "each-ack" => Some(ack.at - sent(covered)),
                _ => (ack.ack > timed).then(|| ack.at - sent(timed)),
            };
            covered = ack.ack;
            if let Some(sample) = sample {
                variation = 0.75 * variation + 0.25 * (srtt - sample).abs();
                srtt = 0.875 * srtt + 0.125 * sample;
                count += 1;
                // The next segment that leaves.
                timed = (0..61).map(|n| n * MSS).find(|seq| sent(*seq) >= ack.at).unwrap_or(60 * MSS);
            }
        }
        let waited = again[0].at - acks.last().expect("an acknowledgement").at;
        let timeout = srtt + 4.0 * variation;
        assert!((waited - timeout).abs() < 0.01, "{samples}: {waited} ms instead of {timeout}");
        trace.assert_complete(61 * MSS);
        (count, waited)
    });
    assert_eq!(waits.map(|(count, _)| count), [7, 31]);
    assert!(waits[0].1 > waits[1].1 + 1.0, "{waits:?}");
}

/// RFC 5681 section 2: an acknowledgement that opens the window is no duplicate, also when SACK does not tell.
#[test]
fn window_updates_are_no_duplicates() {
    let tcp = "sack = false\nreceive-buffer = \"8000B\"\nread-rate = \"2mbit\"\nwindow-scaling = false";
    let trace = Case { tcp, ..Case::new("window-updates") }.size("60000B").check();
    let mut updates = 0;
    for pair in trace.acks().collect::<Vec<_>>().windows(2) {
        updates += u32::from(pair[1].ack == pair[0].ack && pair[1].window > pair[0].window);
    }
    assert!(updates > 5, "{updates} window updates");
    assert!(trace.retransmissions().is_empty());
    trace.assert_complete(60 * MSS);
}

/// RFC 6937 section 3: while a recovery finds more losses, the window follows what is delivered; without, it grows by a segment
/// more for each acknowledgement.
#[test]
fn prr_is_slower_while_losses_go_on() {
    let drops = &[6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26];
    let trace = Case { tcp: "recovery = \"prr\"", drops, ..Case::new("prr-losses") }
        .size("60000B")
        .iw("30pkt")
        .check();
    assert_eq!(trace.metric("rtos"), 0.0);
    assert_eq!(trace.retransmissions().len(), drops.len());
    trace.assert_complete(60 * MSS);
}

/// RFC 6298 (5.5): the timeout doubles; RFC 5681 section 3.1: one segment after it, and slow start.
#[test]
fn timeout_backs_off() {
    let trace = Case { tcp: RFC_RTO, drops: &[8, 11, 12, 13], ..Case::new("rto-backoff") }
        .size("10000B")
        .iw("1pkt")
        .check();
    let lost: Vec<f64> = trace.data().filter(|r| r.seq == 7 * MSS).map(|r| r.at).collect();
    let gaps: Vec<f64> = lost.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(gaps.len(), 4, "{gaps:?}");
    for pair in gaps[1..].windows(2) {
        assert!((pair[1] / pair[0] - 2.0).abs() < 1e-3, "doubles: {gaps:?}");
    }
    assert_eq!(trace.metric("rtos"), 4.0);
    trace.assert_complete(10 * MSS);
}

/// RFC 6582 section 3.2: a partial ACK retransmits the next hole at once, and recovery ends with the full ACK.
#[test]
fn newreno_two_losses_without_sack() {
    let trace =
        Case { tcp: "sack = false\ncwnd-clamp = \"10pkt\"", drops: &[6, 9], ..Case::new("newreno-no-sack") }
            .size("30000B")
            .check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [5 * MSS, 8 * MSS]);
    let third = trace.duplicates(5 * MSS)[2];
    assert!((again[0].at - third.at).abs() < 0.001, "{:?} answers {third:?}", again[0]);
    let partial = trace.acks().find(|a| a.ack == 8 * MSS).expect("a partial ACK");
    assert!(
        again[1].at >= partial.at && again[1].at - partial.at < 1.0,
        "{:?} answers {partial:?}",
        again[1]
    );
    assert!(trace.acks().all(|a| a.sack.is_empty()));
    trace.assert_halved(third, 5 * MSS);
    trace.assert_complete(30 * MSS);
}

/// RFC 3042: each of the first two duplicates releases one new segment, beyond the window of 4.
#[test]
fn limited_transmit_keeps_a_tiny_window_alive() {
    let case = Case { drops: &[1], ..Case::new("limited-transmit") }.size("8000B").iw("4pkt");
    let trace = case.check();
    let duplicates = trace.duplicates(0);
    for (n, duplicate) in duplicates[..2].iter().enumerate() {
        let released: Vec<u64> = trace.answers(duplicate).map(|r| r.seq).collect();
        assert_eq!(released, [(4 + n as u64) * MSS], "{duplicate:?}");
    }
    assert_eq!(trace.answers(duplicates[2]).next().map(|r| r.seq), Some(0), "the third retransmits");
}

/// Without RFC 3042 nothing leaves before the third duplicate.
#[test]
fn no_limited_transmit_waits_for_the_third() {
    let trace = Case { tcp: "limited-transmit = false", drops: &[1], ..Case::new("no-limited-transmit") }
        .size("8000B")
        .iw("4pkt")
        .check();
    let duplicates = trace.duplicates(0);
    assert_eq!(trace.answers(duplicates[0]).count() + trace.answers(duplicates[1]).count(), 0);
    assert_eq!(trace.answers(duplicates[2]).next().map(|r| r.seq), Some(0));
}

/// RFC 6298 section 5 (5.5): SYN timeouts double from 1 s; RFC 6928 section 2: after more than one, the initial
/// window is one segment.
#[test]
fn syn_loss_backs_off_and_starts_small() {
    let trace = Case { jam: Some("1900ms"), ..Case::new("syn-loss") }.size("6000B").check();
    let syns: Vec<f64> = trace.sends().filter(|r| r.flags & SYN != 0).map(|r| r.at).collect();
    assert_eq!(syns.len(), 3, "{syns:?}");
    assert!(
        (syns[1] - syns[0] - 1000.0).abs() < 0.01 && (syns[2] - syns[1] - 2000.0).abs() < 0.01,
        "{syns:?}"
    );
    let first = trace.acks().nth(1).expect("an acknowledgement of data").at;
    let segments = trace.sends().filter(|r| r.len > 0 && r.at < first).count();
    assert_eq!(segments, 1, "one segment after two lost SYNs");
    trace.assert_complete(6 * MSS);
}

/// RFC 9293 section 3.8.6.1: a closed window is probed, at doubling intervals; the update opens it.
#[test]
fn zero_window_is_probed() {
    let trace = Case {
        tcp: "receive-buffer = \"4000B\"\nread-rate = \"8kbit\"\nwindow-scaling = false",
        ..Case::new("zero-window")
    }
    .size("8000B")
    .check();
    let closed = trace.acks().find(|a| a.flags & SYN == 0 && a.window == 0).expect("a zero window");
    let probes: Vec<&Row> =
        trace.sends().filter(|r| r.at > closed.at && r.len == 0 && r.flags & (SYN | FIN) == 0).collect();
    assert!(probes.len() >= 3, "{} probes", probes.len());
    let first: Vec<f64> = probes.windows(2).take(2).map(|w| w[1].at - w[0].at).collect();
    assert!((first[1] / first[0] - 2.0).abs() < 1e-3, "probe intervals double: {first:?}");
    assert_eq!(trace.metric("rtos"), 0.0, "a probe is no timeout");
    assert!(trace.retransmissions().is_empty());
    trace.assert_complete(8 * MSS);
}

/// RFC 9293 section 3.8.6: the sender fills the window that the receiver offers, and no more.
#[test]
fn receive_buffer_limits_the_flight() {
    let trace =
        Case { tcp: "receive-buffer = \"6000B\"\nwindow-scaling = false", ..Case::new("receive-window") }
            .size("40000B")
            .check();
    let most = trace.flights().into_iter().max();
    assert_eq!(most, Some(6 * MSS));
    trace.assert_complete(40 * MSS);
}

/// RFC 9293 section 3.10.4: the FIN rides on the last segment and takes a sequence number.
#[test]
fn short_flow_ends_with_fin() {
    let trace = Case::new("short-flow").size("2500B").check();
    let last = trace.data().last().expect("data");
    assert_eq!((last.seq, last.len, last.flags & FIN), (2 * MSS, 500, FIN));
    assert_eq!(trace.acks().last().map(|a| a.ack), Some(2501));
    assert_eq!(trace.data().filter(|r| r.flags & FIN != 0).count(), 1);
    // Three segments in one flight, the FIN acknowledged at once: SYN and data take two round-trips.
    let took = trace.metric("fct_mean") * 1e3;
    assert!((30.0..36.0).contains(&took), "{took} ms");
}

/// RFC 6675 section 5 halves the window at once: nothing leaves until half of the flight has been reported.
/// RFC 9937 (proportional rate reduction) sends about one segment for two that were delivered.
#[test]
fn prr_spreads_what_rfc6675_sends_late() {
    let case =
        |name, recovery| Case { tcp: recovery, drops: &[21], ..Case::new(name) }.size("120000B").iw("20pkt");
    let at_once = case("recovery-rfc6675", "cwnd-clamp = \"20pkt\"\nrecovery = \"rfc6675\"").check();
    let prr = case("recovery-prr", "cwnd-clamp = \"20pkt\"\nrecovery = \"prr\"").check();
    for trace in [&at_once, &prr] {
        assert_eq!(trace.retransmissions().iter().map(|r| r.seq).collect::<Vec<_>>(), [20 * MSS]);
        trace.assert_complete(120 * MSS);
    }
    // New segments that leave with the first ten duplicates after the third, of a flight of 20.
    let early = |trace: &Trace| {
        let duplicates = trace.duplicates(20 * MSS);
        let (from, to) = (duplicates[2].at, duplicates[11].at);
        trace.data().filter(|r| !r.again && r.at > from && r.at < to + 0.001).count()
    };
    assert_eq!(early(&at_once), 0);
    // 9.5 of 22 that are reported, less the retransmission.
    assert!((3..=4).contains(&early(&prr)), "{} early segments", early(&prr));
    let sent = |trace: &Trace| {
        let end = trace.acks().find(|a| a.ack > 20 * MSS).expect("recovery ends").at;
        trace.data().filter(|r| r.at >= trace.duplicates(20 * MSS)[2].at && r.at < end).count()
    };
    assert!(sent(&at_once).abs_diff(sent(&prr)) <= 1, "in all {} and {}", sent(&at_once), sent(&prr));
}

/// RFC 9438: after a loss 0.7 of the window, back at it after K = cbrt(0.3 W / 0.4) seconds, concave before.
#[test]
fn cubic_returns_to_the_window_of_the_loss() {
    let trace = Case {
        tcp: "congestion-control = \"cubic\"\nhystart = false\nrecovery = \"rfc6675\"",
        drops: &[100],
        delay: "200ms",
        sample: "50ms",
        ..Case::new("cubic-growth")
    }
    .stop_at("10s")
    .golden(Trace::cwnd_table);
    let cwnd = trace.cwnd();
    let peak = cwnd.windows(2).position(|w| w[1] < w[0]).expect("a loss");
    // ACKs between the last sample and the third duplicate still grew the window, a segment each.
    let floor = cwnd[peak + 1];
    let w_max = floor / 0.7;
    assert!(w_max >= cwnd[peak] && w_max < 2.0 * cwnd[peak], "{floor} after {}", cwnd[peak]);
    let start = (peak + 1..cwnd.len()).find(|&i| cwnd[i] > floor + 0.001).expect("growth");
    let k = (0.3 * w_max / 0.4).cbrt();
    let at = |seconds: f64| cwnd[start + (seconds / 0.05) as usize];
    assert!((at(k) / w_max - 1.0).abs() < 0.03, "{} at K = {k:.2} s, W_max {w_max}", at(k));
    let (early, late) = (at(k / 2.0) - at(0.0), at(k) - at(k / 2.0));
    assert!(early > 3.0 * late, "concave: {early} in the first half, {late} in the second");
}

/// RFC 9438 section 4.8: after a timeout K is 0, the plateau is where congestion avoidance starts.
#[test]
fn cubic_after_a_timeout_grows_from_a_new_plateau() {
    let trace = Case {
        tcp: "congestion-control = \"cubic\"\nhystart = false\ncwnd-clamp = \"40pkt\"\nreceive-buffer = \"40000B\"",
        // The whole second window of 20 vanishes.
        drops: &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30],
        delay: "100ms",
        sample: "50ms",
        ..Case::new("cubic-timeout")
    }
    .stop_at("6s")
    .golden(Trace::cwnd_table);
    assert_eq!(trace.metric("rtos"), 1.0);
    let cwnd = trace.cwnd();
    let collapse = cwnd.iter().rposition(|w| *w <= 1.001).expect("one segment after the timeout");
    // ssthresh is 0.7 of 20; from there W_cubic(t) = 14 + 0.4 t^3.
    let start = (collapse..cwnd.len()).find(|&i| cwnd[i] >= 14.0).expect("end of slow start");
    let after = |seconds: f64| cwnd[start + (seconds / 0.05) as usize];
    assert!(after(1.0) < 17.0, "{} a second after slow start", after(1.0));
}

/// BIC (Linux 2.6.18): slow start to 100 segments, 0.8 of the window after a loss, and a search that is fast far from the
/// window of the loss and slow close to it.
#[test]
fn bic_searches_for_the_window_of_the_loss() {
    let trace = Case {
        tcp: "congestion-control = \"bic\"\nrecovery = \"rfc6675\"",
        drops: &[400],
        delay: "200ms",
        sample: "50ms",
        ..Case::new("bic-search")
    }
    .stop_at("20s")
    .golden(Trace::cwnd_table);
    let cwnd = trace.cwnd();
    let peak = cwnd.windows(2).position(|w| w[1] < 0.9 * w[0]).expect("a loss");
    let floor = cwnd[peak + 1];
    let w_max = floor * 1024.0 / 819.0;
    assert!(w_max >= cwnd[peak] - 1.0 && w_max < 1.3 * cwnd[peak], "{floor} after {}", cwnd[peak]);
    let reaches = |window: f64| (peak + 1..cwnd.len()).find(|&i| cwnd[i] >= window).unwrap_or(cwnd.len());
    let distance = w_max - floor;
    let (half, near) = (reaches(floor + distance / 2.0), reaches(floor + 0.9 * distance));
    assert!(half < near && near < cwnd.len(), "half the way at sample {half}, nine tenths at {near}");
    assert!(near - half > half - reaches(floor + 1.0), "the second half of the way takes longer");
}

/// Segments leave `pacing-gain * cwnd / srtt` apart instead of in bursts.
#[test]
fn pacing_spreads_the_window() {
    let trace =
        Case { tcp: "pacing = true\ndelayed-ack = \"1pkt\"\ncwnd-clamp = \"8pkt\"", ..Case::new("pacing") }
            .iw("4pkt")
            .stop_at("250ms")
            .check();
    let acks: Vec<&Row> = trace.acks().collect();
    let rtt = acks[0].at;
    let late: Vec<f64> = trace.data().map(|r| r.at).filter(|at| *at > 150.0).collect();
    let gap = late.windows(2).map(|w| w[1] - w[0]).fold(f64::INFINITY, f64::min);
    // 8 segments per round-trip at the slow-start gain of 2 (ssthresh is unset): never closer than rtt / 16.
    let least = rtt / 16.0;
    assert!(gap > least * 0.98 && gap < least * 2.2, "least gap {gap} ms, rtt / 16 {least} ms");
}

/// draft-cardwell-iccrg-bbr-congestion-control-00, and Linux, whose pace begins with the eleventh segment. A loss leaves the window
/// what was delivered for a round trip (section 4.2.3.4), and does not halve it.
#[test]
fn bbr_does_not_halve() {
    let tcp = "congestion-control = \"bbr\"\ndelayed-ack = \"1pkt\"\nloss-detection = \"rack\"";
    let trace = Case { tcp, drops: &[40], ..Case::new("bbr-startup") }.size("120000B").check();
    let acks: Vec<&Row> = trace.acks().collect();
    // The first window leaves back to back, as the link takes it.
    let first: Vec<f64> = trace.data().take(10).map(|row| row.at).collect();
    let transmission = trace.transmission(trace.data().next().expect("a segment"));
    assert!(first.windows(2).all(|pair| (pair[1] - pair[0] - transmission).abs() < 0.001), "{first:?}");
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|row| row.seq).collect::<Vec<_>>(), [39 * MSS]);
    let cwnd_before = acks.iter().filter(|ack| ack.at < again[0].at).map(|ack| ack.cwnd).fold(0.0, f64::max);
    let last = acks.last().expect("acknowledgements");
    assert!(last.cwnd >= cwnd_before, "{last:?} after {cwnd_before}");
    assert_eq!(trace.metric("rtos"), 0.0);
    trace.assert_complete(120 * MSS);
}

/// Jacobson 1988: the third duplicate sends the segment again, and the window is one segment; slow start up to half of
/// the 15 that were in flight, a segment per round-trip time from there.
#[test]
fn tahoe_starts_slowly_after_a_loss() {
    let trace =
        Case { tcp: TAHOE, drops: &[15], ..Case::new("tahoe-single-loss") }.size("52000B").iw("1pkt").check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [14 * MSS]);
    let duplicates = trace.duplicates(14 * MSS);
    assert_eq!(duplicates.len(), 14, "one for each of the 14 segments behind the loss");
    assert!((again[0].at - duplicates[2].at).abs() < 0.001, "{:?} answers {:?}", again[0], duplicates[2]);
    let released: usize = duplicates.iter().map(|d| trace.answers(d).count()).sum();
    assert_eq!(released, 1, "duplicates release nothing but the retransmission");
    // Half a round-trip time after the segments of a round have left: 1, 2, 4, 7 and a part.
    let cwnd = trace.cwnd();
    let windows = [0.0, 1.0, 2.0, 3.0, 4.0].map(|round| cwnd[(again[0].at + round * RTT + 10.0) as usize]);
    assert_eq!(windows[..3], [1.0, 2.0, 4.0]);
    assert!((windows[3] - 7.0 - 1.0 / 7.0).abs() < 0.01, "{windows:?}");
    assert!((windows[4] - 8.0).abs() < 0.2, "{windows:?}");
    assert_eq!(trace.metric("rtos"), 0.0);
    trace.assert_complete(52 * MSS);
}

/// ns-2: what was outstanding is sent again in order, also what has arrived (28 * MSS here, behind the second loss).
#[test]
fn tahoe_goes_back() {
    let trace = Case { tcp: TAHOE, drops: &[15, 28], ..Case::new("tahoe-two-losses") }
        .size("45000B")
        .iw("1pkt")
        .check();
    let again: Vec<u64> = trace.retransmissions().iter().map(|r| r.seq).collect();
    assert_eq!(again, [14 * MSS, 27 * MSS, 28 * MSS]);
    assert_eq!(trace.metric("rtos"), 0.0);
    trace.assert_complete(45 * MSS);
}

/// ns-2's `bugFix_`, as RFC 6582's `recover`: the three duplicates that needless retransmissions cause at the end of the
/// window bring no second fast retransmit.
#[test]
fn tahoe_retransmits_fast_once_per_window() {
    let trace = Case { tcp: TAHOE, drops: &[15, 16, 17, 18], ..Case::new("tahoe-four-losses") }
        .size("45000B")
        .iw("1pkt")
        .check();
    let again: Vec<u64> = trace.retransmissions().iter().map(|r| r.seq / MSS).collect();
    // Windows of 1, 2, 3 and 4: the first ends with the ACK of 14, the last begins with the ACK of 16.
    assert_eq!(again, [14, 15, 16, 17, 18, 19, 20]);
    let needless = trace.duplicates(29 * MSS);
    assert_eq!(needless.len(), 3, "18, 19 and 20 had arrived");
    let least = trace.acks().filter(|a| a.at > needless[2].at).map(|a| a.cwnd).fold(f64::INFINITY, f64::min);
    assert!(least > 4.0, "window {least} after the needless retransmissions");
    trace.assert_complete(45 * MSS);
}

/// Fall and Floyd 1996, fig. 3: Reno's recovery ends with the partial ACK, and duplicates of what was sent in it start
/// another: 15 becomes 7, and 7 becomes 3.
#[test]
fn reno_halves_with_each_of_two_losses() {
    let trace = Case { tcp: RENO, drops: &[15, 29], ..Case::new("reno-partial-ack") }
        .size("60000B")
        .iw("1pkt")
        .check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [14 * MSS, 28 * MSS]);
    for segment in &again {
        let third = trace.duplicates(segment.seq)[2];
        assert!((segment.at - third.at).abs() < 0.001, "{segment:?} answers {third:?}");
    }
    // Inflated to 7 and the 13 duplicates, less the 15 in flight.
    let inflated = trace.data().filter(|r| !r.again && r.at > again[0].at && r.at < again[0].at + RTT - 1.0);
    assert_eq!(inflated.count(), 5);
    let cwnd = trace.cwnd();
    let windows = again.iter().map(|r| cwnd[r.at as usize + 3]).collect::<Vec<_>>();
    assert_eq!(windows, [7.0, 3.0]);
    assert_eq!(trace.metric("rtos"), 0.0);
    trace.assert_complete(60 * MSS);
}

/// Fall and Floyd 1996, fig. 4: with three losses Reno's window is too small for a third fast retransmit, and the timer
/// must run out.
#[test]
fn reno_waits_for_the_timer_after_three_losses() {
    let trace = Case { tcp: RENO, drops: &[15, 27, 29], ..Case::new("reno-timeout") }
        .size("45000B")
        .iw("1pkt")
        .check();
    let again = trace.retransmissions();
    assert_eq!(again.iter().map(|r| r.seq).collect::<Vec<_>>(), [14 * MSS, 26 * MSS, 28 * MSS]);
    let partial = trace.acks().find(|a| a.ack == 28 * MSS).expect("a partial ACK");
    assert_eq!(trace.answers(partial).count(), 0, "five segments are outstanding, the window is three");
    assert_eq!(trace.duplicates(28 * MSS).len(), 0);
    assert!((again[2].at - partial.at - 1000.0).abs() < 0.01, "{:?} after {partial:?}", again[2]);
    assert_eq!(trace.metric("rtos"), 1.0);
    trace.assert_complete(45 * MSS);
}

/// RFC 3168 sections 6.1.2 and 6.1.3: the receiver echoes congestion until CWR arrives, the sender halves its window
/// once per window of data and says so with CWR on the next new segment.
#[test]
fn ecn_halves_once_per_window() {
    let trace =
        Case { tcp: "ecn = true\ncwnd-clamp = \"11pkt\"", link: RED, delay: "2ms", ..Case::new("ecn") }
            .size("100000B")
            .iw("4pkt")
            .check();
    let marked: Vec<&Row> = trace.data().filter(|r| r.marked).collect();
    assert!(marked.len() >= 3, "{} marks", marked.len());
    assert_eq!(trace.metric("marks"), marked.len() as f64);
    assert!(trace.retransmissions().is_empty(), "nothing is lost");
    // What the receiver sees, and says.
    let arrival = |row: &Row| row.at + trace.transmission(row) + trace.delay;
    let mut arrivals: Vec<&Row> = trace.data().collect();
    arrivals.sort_by(|a, b| arrival(a).total_cmp(&arrival(b)));
    for ack in trace.acks().skip(1) {
        let mut echo = false;
        for row in arrivals.iter().take_while(|r| arrival(r) <= ack.made_at + 0.001) {
            echo = row.marked || echo && row.flags & CWR == 0;
        }
        assert_eq!(ack.flags & ECE != 0, echo, "{ack:?}");
    }
    // A reduction at the first echo that answers something sent after the last one; the rest of the window goes by.
    let mut reduced = trace.data().filter(|r| r.flags & CWR != 0);
    let (mut covered, mut reductions) = (0, 0);
    for echo in trace.acks().filter(|a| a.flags & ECE != 0) {
        if echo.ack <= covered {
            continue;
        }
        let cwr = reduced.next().unwrap_or_else(|| panic!("no CWR answers {echo:?}"));
        assert!(cwr.at >= echo.at, "{cwr:?} comes before {echo:?}");
        // CWR rides on the next new segment, so everything before it was in flight.
        let flight = (cwr.seq - echo.ack) as f64 / MSS as f64;
        assert!((echo.cwnd - flight / 2.0).abs() <= 0.5, "{} after a flight of {flight}", echo.cwnd);
        covered = cwr.seq;
        reductions += 1;
    }
    assert_eq!(reduced.next().map(|r| r.seq), None, "CWR without an echo");
    assert_eq!(reductions, 2);
    trace.assert_complete(100 * MSS);
}

/// As Linux and ns-3 answer a mark: proportional rate reduction replaces every other segment that is acknowledged, so that the window
/// falls from its flight to half of it over a round trip.
#[test]
fn a_mark_may_be_answered_over_a_round_trip() {
    let tcp = "ecn = true\ncwnd-clamp = \"11pkt\"\nmark-reduction = \"prr\"";
    let trace =
        Case { tcp, link: RED, delay: "2ms", ..Case::new("ecn-prr") }.size("100000B").iw("4pkt").check();
    assert!(trace.retransmissions().is_empty(), "nothing is lost");
    let echo = trace.acks().find(|a| a.flags & ECE != 0).expect("an echo");
    // CWR rides on the next new segment, so everything before it was in flight.
    let cwr = trace.data().find(|r| r.flags & CWR != 0).expect("an answer");
    let flight = (cwr.seq - echo.ack) as f64 / MSS as f64;
    let falling: Vec<f64> =
        trace.acks().filter(|a| (echo.ack..=cwr.seq).contains(&a.ack)).map(|a| a.cwnd).collect();
    assert!(falling[0] >= flight && falling[0] <= flight + 1.0, "{falling:?} from a flight of {flight}");
    assert!(falling.windows(2).all(|pair| pair[1] <= pair[0]), "{falling:?}");
    let after = trace.acks().find(|a| a.ack > cwr.seq).expect("an acknowledgement of it");
    assert!((after.cwnd - flight / 2.0).abs() <= 0.5, "{} after a flight of {flight}", after.cwnd);
    trace.assert_complete(100 * MSS);
}

// ----------------------------------------------------------------------------------------------------- harness

/// As in ns-1: an ACK for each segment, growth for each ACK, and the timer of RFC 6298.
const TAHOE: &str = "congestion-control = \"tahoe\"\nsack = false\ndelayed-ack = \"1pkt\"\nlimited-transmit = false\n\
                     byte-counting = false\nmin-rto = \"1s\"\nrto-floor = \"rto\"";
const RENO: &str = "congestion-control = \"reno\"\nsack = false\ndelayed-ack = \"1pkt\"\nlimited-transmit = false\n\
                    byte-counting = false\nmin-rto = \"1s\"\nrto-floor = \"rto\"";
/// Milliseconds from a segment to its ACK on an idle link.
const RTT: f64 = 20.0 + (1052.0 + 52.0) * 8.0 / 10e3;
/// Marks what finds more than two packets waiting, all but one in a million, and drops nothing below six.
const RED: &str = "host-queue = { discipline = \"red\", min-th = \"2pkt\", max-th = \"3pkt\", weight = 1.0, \
                   max-p = 0.999999, ecn = true }";

/// A window that the link holds without a queue: segments leave when ACKs come.
const NO_QUEUE: &str = "cwnd-clamp = \"10pkt\"";
const RACK: &str = "cwnd-clamp = \"10pkt\"\nloss-detection = \"rack\"";
const TLP: &str = "cwnd-clamp = \"10pkt\"\nloss-detection = \"rack\"\ntail-loss-probe = true";
/// RFC 6298 as written: the timeout is at least a second.
const RFC_RTO: &str = "min-rto = \"1s\"\nrto-floor = \"rto\"";

#[derive(Clone)]
struct Case {
    name: &'static str,
    /// Lines for `[tcp]`.
    tcp: &'static str,
    drops: &'static [u64],
    /// Lines for the link.
    link: &'static str,
    /// Probability that the link loses what comes back.
    loss_back: f64,
    delay: &'static str,
    sample: &'static str,
    window: &'static str,
    flow: String,
    /// A UDP source keeps the queue of the only router full until then.
    jam: Option<&'static str>,
}

impl Case {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            tcp: "",
            drops: &[],
            link: "",
            loss_back: 0.0,
            delay: "10ms",
            sample: "1ms",
            window: "10pkt",
            flow: String::new(),
            jam: None,
        }
    }

    fn size(mut self, size: &str) -> Self {
        self.flow = format!("size = \"{size}\"");
        self
    }

    fn stop_at(mut self, time: &str) -> Self {
        self.flow = format!("stop = \"{time}\"");
        self
    }

    fn iw(mut self, window: &'static str) -> Self {
        self.window = window;
        self
    }

    fn text(&self) -> String {
        let Self { tcp, drops, link, loss_back, delay, sample, window, flow, .. } = self;
        let congestion_control =
            if tcp.contains("congestion-control") { "" } else { "congestion-control = \"newreno\"" };
        let recovery = if tcp.contains("recovery") { "" } else { "recovery = \"rfc6675\"" };
        let (nodes, jam) = match self.jam {
            None => (
                format!(
                    "hosts = [\"tx\", \"rx\"]\n[[network.links]]\nends = [\"tx\", \"rx\"]\nrate = \"10mbit\"\n\
                     delay = \"{delay}\"\ndrop-packets = {drops:?}\n\
                     loss = 0.0\nloss-back = {loss_back:?}\n{link}\n"
                ),
                String::new(),
            ),
            Some(stop) => (
                "hosts = [\"tx\", \"noise\", \"rx\"]\nrouters = [\"r\"]\n[network.link]\nrate = \"10mbit\"\n\
                 [[network.links]]\nends = [\"tx\", \"r\"]\ndelay = \"0ms\"\n\
                 [[network.links]]\nends = [\"noise\", \"r\"]\nrate = \"10gbit\"\ndelay = \"0ms\"\n\
                 [[network.links]]\nends = [\"r\", \"rx\"]\ndelay = \"10ms\"\nqueue = \"1pkt\"\n"
                    .to_owned(),
                format!(
                    "[[flows]]\nname = \"noise\"\nfrom = \"noise\"\nto = \"rx\"\ntransport = \"udp\"\nrate = \"5gbit\"\n\
                     stop = \"{stop}\"\n"
                ),
            ),
        };
        let start = if self.jam.is_some() { "start = \"100ms\"" } else { "" };
        format!(
            "version = 1\nname = \"{}\"\n[run]\nduration = \"30s\"\nsample = \"{sample}\"\n\
             [measure]\nrecord = \"flows\"\nlong-interval = \"1s\"\n\
             [tcp]\nmss = \"{MSS}B\"\ninitial-window = \"{window}\"\n{congestion_control}\n{recovery}\n{}\n\
             [[flows]]\nname = \"flow\"\nfrom = \"tx\"\nto = \"rx\"\n{flow}\n{start}\n{jam}\
             [network]\nframe-overhead = \"0B\"\nhost-delay = 0.0\n{nodes}",
            self.name, tcp,
        )
    }

    /// Runs, checks what holds for every trace, and compares the trace with its golden file.
    fn check(&self) -> Trace {
        self.golden(Trace::table)
    }

    fn golden(&self, table: fn(&Trace) -> String) -> Trace {
        let trace = self.trace();
        trace.assert_rfc();
        compare(self.name, &table(&trace));
        trace
    }

    fn trace(&self) -> Trace {
        let text = self.text();
        let study = parse(self.name, &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let scenario = &study.cases[0].scenario;
        let capture = |port: &str| {
            let mut packets = Vec::new();
            let mut keep = |packet: &CapturedPacket| packets.push(*packet);
            let mut options = RunOptions { capture: Some((port, &mut keep)), ..RunOptions::default() };
            let record = run(scenario, 0, 0, &mut options).expect("a run");
            (packets, record)
        };
        let hops = if self.jam.is_some() { ["tx->r", "rx->r"] } else { ["tx->rx", "rx->tx"] };
        let (sent, record) = capture(hops[0]);
        let (answers, _) = capture(hops[1]);
        let way_back = self.delay.trim_end_matches("ms").parse::<f64>().expect("a delay in ms");
        let hops_back = if self.jam.is_some() { 2.0 } else { 1.0 };
        let mut trace = Trace { rows: Vec::new(), record, scale: 0, delay: way_back };
        let mut highest = 0;
        let mut ordinal = 0;
        for packet in &sent {
            let row = trace.row(packet, true);
            ordinal += u64::from(row.len > 0);
            let event = match row {
                _ if row.len > 0 && self.drops.contains(&ordinal) => Event::Lost,
                _ => Event::Sent,
            };
            let again = row.len > 0 && row.seq < highest;
            highest = highest.max(row.seq + row.len);
            trace.rows.push(Row { event, again, ..row });
        }
        let plan = LossPlan { random: self.loss_back, ..LossPlan::default() };
        let mut losses = Losses::from_plan(plan, |_| Stream::new(scenario.run.seed, 0, "port/rx->tx/loss"));
        for packet in &answers {
            if losses.as_mut().is_some_and(|losses| losses.loses_next(false)) {
                continue;
            }
            let mut row = trace.row(packet, false);
            let stamps = if self.tcp.contains("timestamps = false") { 0 } else { 12 };
            let options = stamps + if row.sack.is_empty() { 0 } else { 4 + 8 * row.sack.len() };
            // 800 ns per byte; whole nanoseconds, so that rows compare exactly.
            let nanos = packet.at.as_nanos() as f64
                + hops_back * f64::from(40 + options as u32) * 800.0
                + way_back * MS;
            row.at = nanos / MS;
            trace.rows.push(row);
        }
        // At one moment, the ACK comes before what it releases.
        let order = |row: &Row| row.event != Event::Acked;
        trace.rows.sort_by(|a, b| a.at.total_cmp(&b.at).then(order(a).cmp(&order(b))));
        trace.fill_cwnd(self.sample.trim_end_matches("ms").parse().expect("a sample in ms"));
        trace
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Sent,
    Lost,
    Acked,
}

#[derive(Clone, Debug)]
struct Row {
    /// Milliseconds: start of transmission, or arrival of an ACK at the sender.
    at: f64,
    /// An ACK's start of transmission at the receiver.
    made_at: f64,
    event: Event,
    seq: u64,
    len: u64,
    ack: u64,
    flags: u8,
    window: u64,
    sack: Vec<(u64, u64)>,
    /// A retransmission.
    again: bool,
    /// Congestion experienced (RFC 3168).
    marked: bool,
    /// Segments, after an ACK.
    cwnd: f64,
}

struct Trace {
    rows: Vec<Row>,
    record: RunRecord,
    scale: u8,
    delay: f64,
}

impl Trace {
    fn row(&mut self, packet: &CapturedPacket, forward: bool) -> Row {
        let CapturedTransport::Tcp(tcp) = packet.transport else { panic!("a datagram at {:?}", packet.at) };
        let CapturedTcp { flags, .. } = tcp;
        if let Some(scale) = tcp.window_scale {
            self.scale = scale;
        }
        // Offset 0 is the byte after the SYN, whose number is 1.
        let offset = |number: u32| u64::from(number.wrapping_sub(2));
        let syn = flags & SYN != 0;
        let scale = if syn { 0 } else { self.scale };
        Row {
            at: packet.at.as_nanos() as f64 / MS,
            made_at: packet.at.as_nanos() as f64 / MS,
            event: if forward { Event::Sent } else { Event::Acked },
            seq: if syn || !forward { 0 } else { offset(tcp.seq) },
            len: u64::from(packet.payload),
            ack: if forward { 0 } else { offset(tcp.ack) },
            flags,
            window: u64::from(tcp.window) << scale,
            sack: tcp.sack[..usize::from(tcp.sack_count)]
                .iter()
                .map(|&(l, r)| (offset(l), offset(r)))
                .collect(),
            again: false,
            marked: packet.tos & 3 == 3,
            cwnd: f64::NAN,
        }
    }

    fn fill_cwnd(&mut self, sample_ms: f64) {
        let cwnd = self.cwnd();
        for row in self.rows.iter_mut().filter(|r| r.event == Event::Acked) {
            row.cwnd = cwnd.get((row.at / sample_ms) as usize).copied().unwrap_or(f64::NAN);
        }
    }

    /// Congestion window in segments at the ends of sampling intervals.
    fn cwnd(&self) -> Vec<f64> {
        let series = self.record.series.iter().find(|s| s.metric == "cwnd").expect("a cwnd series");
        series.values.iter().map(|v| f64::from(*v) / MSS as f64).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        self.record.metric(name).expect("a metric")
    }

    fn sends(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.event != Event::Acked)
    }

    fn data(&self) -> impl Iterator<Item = &Row> {
        self.sends().filter(|r| r.len > 0)
    }

    fn acks(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.event == Event::Acked)
    }

    fn retransmissions(&self) -> Vec<&Row> {
        self.data().filter(|r| r.again).collect()
    }

    /// ACKs of `offset` after the first.
    fn duplicates(&self, offset: u64) -> Vec<&Row> {
        let repeated: Vec<&Row> = self.acks().filter(|a| a.ack == offset).collect();
        // The SYN-ACK is not a duplicate, but the first ACK of offset 0.
        repeated[1..].to_vec()
    }

    /// Segments whose transmission starts at the moment at which `ack` arrives.
    fn answers(&self, ack: &Row) -> impl Iterator<Item = &Row> {
        let at = ack.at;
        self.data().filter(move |r| (r.at - at).abs() < 0.001)
    }

    /// The last acknowledgement before `row`, and the smoothed round-trip time after it (RFC 6298). All segments went out together
    /// when the handshake ended.
    fn before(&self, row: &Row) -> (&Row, f64) {
        let acks: Vec<&Row> = self.acks().filter(|ack| ack.at < row.at).collect();
        let open = acks[0].at;
        let srtt = acks[1..].iter().fold(open, |srtt, ack| 0.875 * srtt + 0.125 * (ack.at - open));
        (acks[acks.len() - 1], srtt)
    }

    /// Milliseconds on the link.
    fn transmission(&self, row: &Row) -> f64 {
        (row.len + 52) as f64 * 8.0 / 10e6 * 1e3
    }

    /// Bytes sent and not acknowledged, after every row.
    fn flights(&self) -> Vec<u64> {
        let (mut una, mut next) = (0, 0);
        self.rows
            .iter()
            .map(|row| {
                match row.event {
                    Event::Acked => una = una.max(row.ack),
                    _ => next = next.max(row.seq + row.len),
                }
                next.saturating_sub(una)
            })
            .collect()
    }

    /// The window after the recovery of `hole` is half the flight at the third duplicate, less what limited transmit
    /// added, to within a segment.
    fn assert_halved(&self, third: &Row, hole: u64) {
        let sent = self.data().filter(|r| r.at < third.at - 0.001).map(|r| r.seq + r.len).max().unwrap_or(0);
        let flight = (sent - hole) as f64 / MSS as f64 - 2.0;
        let end = self.acks().filter(|a| a.ack >= sent).map(|a| a.cwnd).next().expect("recovery ends");
        assert!((end - flight / 2.0).abs() <= 1.0, "window {end} after a flight of {flight}");
    }

    fn assert_complete(&self, size: u64) {
        assert_eq!(self.metric("completed"), 1.0);
        assert_eq!(self.acks().last().map(|a| a.ack), Some(size + 1), "data and FIN acknowledged");
    }

    /// What holds for every trace.
    fn assert_rfc(&self) {
        let mut edge = 0;
        let mut una = 0;
        let mut sacked: Vec<(u64, u64)> = Vec::new();
        for row in &self.rows {
            match row.event {
                Event::Acked => {
                    assert!(row.ack >= una, "ACKs never go back: {row:?}");
                    assert!(
                        row.ack + row.window >= edge,
                        "RFC 9293 3.8.6: the right edge never shrinks: {row:?}"
                    );
                    una = row.ack;
                    edge = row.ack + row.window;
                    sacked.extend(row.sack.iter().filter(|&&(_, right)| right > row.ack));
                    // RFC 2883: the first block may lie below.
                    let first = usize::from(row.sack.first().is_some_and(|&(_, right)| right <= row.ack));
                    for &(left, right) in &row.sack[first..] {
                        assert!(
                            left > row.ack && right > left,
                            "RFC 2018: blocks lie beyond the ACK: {row:?}"
                        );
                    }
                }
                _ if row.len > 0 => {
                    assert!(row.seq + row.len <= edge, "sent beyond the window's edge {edge}: {row:?}");
                    if row.again {
                        let known = |&(left, right): &(u64, u64)| left <= row.seq && row.seq < right;
                        // The host's queue may hold a segment while ACKs arrive.
                        assert!(!sacked.iter().any(known), "sent again though SACKed: {row:?}");
                    }
                }
                _ => {}
            }
        }
        self.assert_first_blocks();
    }

    /// RFC 2018 section 4: the first block holds the segment that caused the ACK.
    fn assert_first_blocks(&self) {
        for ack in self.acks().filter(|a| !a.sack.is_empty()) {
            let latest = self
                .data()
                .filter(|r| r.event == Event::Sent)
                .filter(|r| r.at + self.transmission(r) + self.delay <= ack.made_at + 0.001)
                .max_by(|a, b| a.at.total_cmp(&b.at))
                .expect("a segment came");
            if latest.seq > ack.ack {
                let (left, right) = ack.sack[0];
                assert!(left <= latest.seq && latest.seq < right, "{ack:?} answers {latest:?}");
            }
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:>10} {:5} {:>8} {:>5} {:5} {:>7} {:>6}  sack\n",
            "time_ms", "event", "seq/ack", "len", "flags", "window", "cwnd"
        );
        for row in &self.rows {
            let flags: String = [(SYN, 'S'), (FIN, 'F'), (16, 'A'), (ECE, 'E'), (CWR, 'C')]
                .iter()
                .filter(|(f, _)| row.flags & f != 0)
                .map(|(_, c)| *c)
                .collect();
            let line = match row.event {
                Event::Acked => {
                    let sack: Vec<String> = row.sack.iter().map(|(l, r)| format!("{l}-{r}")).collect();
                    let cwnd = if row.cwnd.is_nan() { String::new() } else { format!("{:.2}", row.cwnd) };
                    format!(
                        "{:5} {:>8} {:>5} {flags:5} {:>7} {cwnd:>6}  {}",
                        "ack",
                        row.ack,
                        "",
                        row.window,
                        sack.join(" ")
                    )
                }
                event => {
                    let event = match (event, row.again) {
                        (Event::Lost, _) => "lost",
                        (_, true) => "again",
                        _ => "send",
                    };
                    let mark = if row.marked { "CE" } else { "" };
                    format!("{event:5} {:>8} {:>5} {flags:5} {mark}", row.seq, row.len)
                }
            };
            let _ = writeln!(text, "{:>10.3} {}", row.at, line.trim_end());
        }
        text
    }

    /// The window at every fourth sample, while the flow runs.
    fn cwnd_table(&self) -> String {
        let mut text = "time_ms    cwnd\n".to_owned();
        let step = self.record.sample.as_nanos() as f64 / MS;
        let end = self.data().last().map_or(0.0, |r| r.at);
        for (i, cwnd) in self.cwnd().iter().enumerate().skip(3).step_by(4) {
            let at = (i + 1) as f64 * step;
            if at <= end {
                let _ = writeln!(text, "{at:>7.0} {cwnd:>7.2}");
            }
        }
        text
    }
}

fn compare(name: &str, text: &str) {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "golden", &format!("tcp-{name}.txt")].iter().collect();
    if std::env::var_os("BANDMASTER_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden file is written");
        return;
    }
    let golden = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; BANDMASTER_BLESS=1 writes it", path.display()))
        .replace('\r', "");
    if golden == text {
        return;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), text.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let mut diff = String::new();
    for line in old.iter().skip(same).take(12) {
        let _ = writeln!(diff, "-{line}");
    }
    for line in new.iter().skip(same).take(12) {
        let _ = writeln!(diff, "+{line}");
    }
    panic!(
        "{name}: differs from {} at line {}; BANDMASTER_BLESS=1 accepts it\n{diff}",
        path.display(),
        same + 1
    );
}
