//! Packet captures.

use std::process::Command;

use crate::program::{Scratch, ended};

const SECTION_HEADER_BLOCK: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

fn captured(scratch: &Scratch) -> std::path::PathBuf {
    let args = ["run", "small.toml", "--quick", "--out", "out", "--pcap", "r1->r2", "--pcap-case", "cubic"];
    scratch.run(&args).expect(0);
    scratch.path("out/r1-r2.pcapng")
}

#[test]
fn a_port_is_written_as_pcapng() {
    let scratch = Scratch::with_scenario("capture");
    let bytes = std::fs::read(captured(&scratch)).expect("a capture");
    assert_eq!(bytes[..4], SECTION_HEADER_BLOCK);
    assert!(bytes.len() > 100_000, "only {} bytes", bytes.len());
}

#[test]
fn a_snap_length_makes_a_small_file_of_as_many_packets() {
    let scratch = Scratch::with_scenario("snap");
    let run = |out: &str, more: &[&str]| {
        let args = ["run", "small.toml", "--quick", "--out", out, "--pcap", "r1->r2"];
        scratch.run(&[&args, more].concat()).expect(0);
        std::fs::read(scratch.path(out).join("r1-r2.pcapng")).expect("a capture")
    };
    let (whole, cut) = (run("whole", &[]), run("cut", &["--pcap-snaplen", "96"]));
    assert!(cut.len() < whole.len() / 5, "{} of {} bytes", cut.len(), whole.len());
    let wrong = scratch.run(&["run", "small.toml", "--pcap-snaplen", "96"]).expect(2);
    assert!(wrong.stderr.contains("--pcap <FROM->TO>"), "{}", wrong.stderr);
    let wrong = scratch.run(&["run", "small.toml", "--pcap", "r1->r2", "--pcap-snaplen", "0"]).expect(2);
    assert!(wrong.stderr.contains("write a whole number from 1 to 65535"), "{}", wrong.stderr);
}

#[test]
#[ignore = "needs tshark; `bash ci.sh pcap` runs it"]
fn tshark_reads_a_capture_without_complaint() {
    let scratch = Scratch::with_scenario("tshark");
    let file = captured(&scratch);
    let tshark = |filter: &str| {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&file).args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
        command.args(["-T", "fields", "-e", "frame.number", "-Y", filter]);
        ended(command).expect(0).stdout.lines().count()
    };
    let packets = tshark("tcp.checksum.status == \"Good\" && ip.checksum.status == \"Good\"");
    assert!(packets > 100, "only {packets} packets with good checksums");
    assert_eq!(tshark("frame"), packets, "some packets are not TCP with good checksums");
    assert_eq!(tshark("_ws.malformed || _ws.expert.severity == error"), 0);
    assert_eq!(tshark("tcp.flags.syn == 1 && tcp.options.mss"), tshark("tcp.flags.syn == 1"));
}
