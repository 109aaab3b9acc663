use super::sender::MOST_CLASSES;
use super::*;

const GOOD: &str = r#"
version = 1
role = "sender"
interface = "wan0"

[peer]
address = "192.0.2.2"
key-file = "peer.key"

[control]
estimator = "delay"
safe-rate = "500kbit"

[[classes]]
name = "rest"
priority = 9
need = "100kbit"

[[classes]]
name = "voice"
priority = 1
need = "400kbit"
retransmission = false

[[classes.match]]
dscp = ["ef", 34]
source = ["10.1.0.0/16"]
protocol = "udp"
ports = [5060, "10000-20000"]
"#;

fn errors(text: &str) -> Vec<String> {
    parse("gw.toml", text)
        .err()
        .map_or_else(Vec::new, |errors| errors.iter().map(ToString::to_string).collect())
}

/// 100 ms of 20 Mbit/s are 166.7 packets of 1500 bytes; five flows of that need five times the room. A short queue has 20.
#[test]
fn a_class_has_room_for_a_tenth_of_a_second_of_its_need() {
    let queue = |voice: &str| {
        let file = GOOD.replace("need = \"400kbit\"", voice);
        parse("gw.toml", &file).expect("valid").sender.expect("a sender").classes[0].queue
    };
    assert_eq!(queue("need = \"400kbit\""), 20);
    assert_eq!(queue("need = \"20mbit\""), 167);
    assert_eq!(queue("need = \"20mbit\"\nflows = 5"), 834);
    assert_eq!(queue("need = \"20mbit\"\nqueue = \"7pkt\""), 7);
}

#[test]
fn a_file_becomes_a_deployment_in_order_of_priority() {
    let deployment = parse("gw.toml", GOOD).expect("valid");
    let sender = deployment.sender.expect("a sender");
    let names: Vec<&str> = sender.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["voice", "rest"]);
    let flows = er2bc::Settings::new(&sender.params, 0).flows;
    assert_eq!(flows[0].need, Rate::from_bits_per_sec(400_000));
    // 400 kbit/s of packets of 1500 B are 403.7 kbit/s of frames of 1514 B.
    let framed = er2bc::Settings::new(&sender.params, 14).flows;
    assert_eq!(framed[0].need, Rate::from_bits_per_sec(403_733));
    assert!(!flows[0].retransmits);
    assert_eq!(sender.hold, Span::from_secs(10));
    let rule = &sender.classes[0].matches[0];
    assert_eq!(
        (rule.dscp.as_slice(), rule.ports.as_slice()),
        (&[46, 34][..], &[(5060, 5060), (10_000, 20_000)][..])
    );
    assert_eq!(deployment.peer.to_string(), "192.0.2.2:4741");
    assert_eq!(deployment.listen.to_string(), "0.0.0.0:4741");
    assert_eq!(deployment.data[0].source[0].to_string(), "192.0.2.2/32");
}

#[test]
fn a_gateway_is_called_as_its_file_says_or_as_the_file() {
    let read = |file: &str, text: &str| {
        parse(file, text).map(|deployment| (deployment.name, deployment.state_directory))
    };
    let pair = |name: &str, folder: &str| Ok((name.to_owned(), folder.to_owned()));
    assert_eq!(read("/etc/bandmaster/gateway.toml", GOOD), pair("gateway", "/var/lib/bandmaster/gateway"));
    assert_eq!(read("site-a.toml", GOOD), pair("site-a", "/var/lib/bandmaster/site-a"));
    let named = GOOD.replace("role =", "name = \"north\"\nrole =");
    assert_eq!(read("site-a.toml", &named), pair("north", "/var/lib/bandmaster/north"));
    let placed = GOOD.replace("role =", "state-directory = \"/run/x\"\nrole =");
    assert_eq!(read("site-a.toml", &placed), pair("site-a", "/run/x"));
    for wrong in ["", "-a", "../a", "a b", "a/b", &"a".repeat(33)] {
        let text = GOOD.replace("role =", &format!("name = \"{wrong}\"\nrole ="));
        assert!(errors(&text)[0].contains("gw.toml:3:8: error: name: "), "{wrong}: {:?}", errors(&text));
        let said = parse(&format!("{wrong}.toml"), GOOD).err();
        assert!(wrong.contains('/') || said.is_some(), "{wrong}");
    }
}

/// One mistake each: what was written, what to write instead, and what the message must say, place included.
#[test]
fn mistakes_are_named_with_place_and_remedy() {
    let cases = [
        (
            "role = \"sender\"",
            "role = \"sendr\"",
            "gw.toml:3:8: error: role: \"sendr\" is not \"sender\", \"receiver\" or \"both\"; did you mean \"sender\"?",
        ),
        ("interface = \"wan0\"", "interfce = \"wan0\"", "did you mean `interface`?"),
        (
            "\"wan0\"",
            "\"a wan\"",
            "gw.toml:4:13: error: interface: \"a wan\" is not the name of a network device",
        ),
        ("\"192.0.2.2\"", "\"gw_example..net\"", "a name such as"),
        (
            "\"192.0.2.2\"",
            "\"192.0.2.256\"",
            "gw.toml:7:11: error: peer.address: \"192.0.2.256\" is not an IP address",
        ),
        (
            "\"192.0.2.2\"",
            "\"0.0.0.0\"",
            "gw.toml:7:11: error: peer.address: \"0.0.0.0\" is no machine's address",
        ),
        ("\"192.0.2.2\"", "\"::\"", "is no machine's address"),
        ("\"192.0.2.2\"", "\"0.1.2.3\"", "is of network 0"),
        ("\"192.0.2.2\"", "\"224.0.0.5\"", "is a multicast address"),
        ("\"192.0.2.2\"", "\"ff02::1\"", "is a multicast address"),
        ("\"192.0.2.2\"", "\"255.255.255.255\"", "is the broadcast address"),
        ("\"192.0.2.2\"", "\"::ffff:192.0.2.2\"", "write the IPv4 one"),
        (
            "\"192.0.2.2\"",
            "\"192.0.2.2\"\nlisten-address = \"192.0.2.2\"",
            "peer.address: 192.0.2.2:4741 is the own address and port",
        ),
        (
            "\"192.0.2.2\"",
            "\"192.0.2.2\"\nlisten-address = \"239.1.1.1\"",
            "listen-address: \"239.1.1.1\" is a multicast",
        ),
        ("\"192.0.2.2\"", "\"any\"\nport = 5000", "peer.port: goes with an address or a name"),
        ("\"192.0.2.2\"", "\"192.0.2.2\"\nkeep-alive = \"25s\"", "peer.keep-alive: goes with"),
        (
            "\"192.0.2.2\"\nkey-file = \"peer.key\"",
            "\"gw.example\"\nauth = \"none\"",
            "peer.address: goes with auth = \"hmac\"",
        ),
        ("role =", "metrics = \"127.0.0.1:0\"\nrole =", "metrics: 127.0.0.1:0 has port 0"),
        ("role =", "metrics = \"224.0.0.1:9464\"\nrole =", "metrics: 224.0.0.1:9464 is a multicast"),
        (
            "need = \"400kbit\"",
            "need = \"2gbit\"",
            "gw.toml:22:8: error: classes.voice.need: 2gbit is above the ceiling of 1gbit",
        ),
        (
            "need = \"400kbit\"",
            "need = \"400kbit\"\nflows = 3000",
            "400kbit for each of 3000 flows, 1200mbit, is above the ceiling",
        ),
        ("need = \"400kbit\"", "need = \"400kbit\"\nflows = 0", "flows: "),
        ("safe-rate = \"500kbit\"", "safe-rate = \"0bit\"", "must be more than nothing"),
        (
            "safe-rate = \"500kbit\"",
            "safe-rate = \"500kbit\"\ninitial = \"1tbit\"",
            "initial: 1000gbit is above",
        ),
        ("key-file = \"peer.key\"", "", "peer.key-file: is missing"),
        ("key-file = \"peer.key\"", "key-file = \"k\"\nauth = \"none\"", "goes with auth = \"hmac\""),
        ("safe-rate = \"500kbit\"", "safe-rate = \"500kbps\"", "tc reads it as bytes per second"),
        ("safe-rate = \"500kbit\"", "safe-rate = \"2gbit\"", "2gbit is above the ceiling of 1gbit"),
        (
            "safe-rate = \"500kbit\"",
            "safe-rate = \"1mbit\"\nhold = \"2s\"",
            "2s is shorter than 3 cycles of 1s",
        ),
        (
            "safe-rate = \"500kbit\"",
            "safe-rate = \"500kbit\"\ntheta-low = 2",
            "theta-low: 2 is above theta-high, 1",
        ),
        ("priority = 9", "priority = 1", "1 is the priority of class `rest`"),
        ("name = \"rest\"", "name = \"voice\"", "the name `voice` is taken"),
        ("priority = 1\n", "priority = 10\n", "only the class of the last priority may"),
        ("10.1.0.0/16", "10.1.2.0/16", "did you mean \"10.1.0.0/16\"?"),
        ("10.1.0.0/16", "10.1.0.0/33", "from 0 to 32"),
        ("\"ef\"", "\"best\"", "is not a code point"),
        ("protocol = \"udp\"\n", "", "need protocol"),
        ("\"10000-20000\"", "\"20000-10000\"", "is not a port from 1 to 65535"),
        ("need = \"400kbit\"", "need = 400", "has no unit"),
        ("version = 1", "version = 2", "this program reads version 1"),
        ("10.1.0.0/16\"]", "10.1.0.0/16\", \"fd00::/8\"]", "mixes IPv4 and IPv6"),
        (
            "protocol = \"udp\"",
            "protocol = \"udp\"\ndestination = [\"fd00::/8\"]",
            "destination: is of another IP version than source",
        ),
        (
            "ports = [5060, \"10000-20000\"]\n",
            "ports = [5060, \"10000-20000\"]\n[[classes.match]]\n",
            "is empty: it would",
        ),
        ("need = \"100kbit\"", "need = \"100kbit\"\nqueue = \"0pkt\"", "queue: "),
        ("need = \"100kbit\"", "need = \"0kbit\"", "must be more than nothing"),
    ];
    for (from, to, expected) in cases {
        assert!(GOOD.contains(from), "{from}");
        let said = errors(&GOOD.replacen(from, to, 1));
        assert!(said.iter().any(|message| message.contains(expected)), "{to}: {said:#?}");
    }
}

/// Ten times the ceiling and a little.
#[test]
fn needs_far_beyond_the_ceiling_are_absurd() {
    let (head, _) = GOOD.split_once("[[classes]]").expect("classes");
    let class = |i: usize| {
        format!(
            "[[classes]]\nname = \"c{i}\"\npriority = {i}\nneed = \"1gbit\"\n[[classes.match]]\ndscp = [1]\n"
        )
    };
    let with = |count: usize| head.to_owned() + &(1..=count).map(class).collect::<String>();
    assert_eq!(errors(&with(10)), [] as [String; 0]);
    assert!(
        errors(&with(11))[0].contains("sum of the needs 11gbit, more than 10 times"),
        "{:?}",
        errors(&with(11))
    );
}

/// A peer without a fixed address; `[[data]]` identifies what it sends.
#[test]
fn a_peer_may_be_named_or_learnt() {
    let read = |address: &str| parse("gw.toml", &GOOD.replace("192.0.2.2", address)).expect("valid");
    let named = read("gw.example.net");
    assert_eq!(named.whereabouts, Whereabouts::Named("gw.example.net".to_owned()));
    assert_eq!(
        (named.peer.to_string(), named.listen.to_string()),
        ("0.0.0.0:4741".into(), "0.0.0.0:4741".into())
    );
    assert_eq!(read("any").whereabouts, Whereabouts::Learnt);
    assert_eq!(read("any\"\nlisten-address = \"::").listen.to_string(), "[::]:4741");
    let (head, _) = GOOD.split_once("[control]").expect("control");
    let receiver = head.replace("sender", "receiver").replace("192.0.2.2", "any");
    assert!(errors(&receiver)[0].contains("data: is missing"), "{:?}", errors(&receiver));
    assert_eq!(errors(&(receiver + "[[data]]\nsource = \"10.1.0.0/16\"\n")), [] as [String; 0]);
}

/// 30 calls of 80 kbit/s.
#[test]
fn a_class_needs_what_its_flows_need_together() {
    let text = GOOD.replace("need = \"400kbit\"", "need = \"80kbit\"\nflows = 30");
    let sender = parse("gw.toml", &text).expect("valid").sender.expect("a sender");
    assert_eq!((sender.classes[0].flows, sender.classes[1].flows), (30, 1));
    let flows = er2bc::Settings::new(&sender.params, 0).flows;
    assert_eq!(flows[0].need, Rate::from_bits_per_sec(2_400_000));
}

#[test]
fn counted_flows_make_the_need() {
    let text = GOOD.replace("need = \"400kbit\"", "need = \"80kbit\"\nflows = 2\ncount-flows = true");
    let mut sender = parse("gw.toml", &text).expect("valid").sender.expect("a sender");
    let needs = |sender: &Sender| -> Vec<u64> {
        er2bc::Settings::new(&sender.params, 0).flows.iter().map(|flow| flow.need.bits_per_sec()).collect()
    };
    assert_eq!(needs(&sender), [160_000, 100_000]);
    assert!(!sender.count(&[1, 7]), "at least two; the other class is not counted");
    assert!(sender.count(&[30, 7]));
    assert_eq!((needs(&sender), sender.classes[0].flows), (vec![2_400_000, 100_000], 30));
    assert!(sender.count(&[u32::MAX, 0]));
    assert_eq!(needs(&sender)[0], 1_000_000_000, "the ceiling");
    assert!(sender.count(&[0, 0]));
    assert_eq!(needs(&sender), [160_000, 100_000]);
}

#[test]
fn both_directions_need_two_keys() {
    let both = GOOD.replace("role = \"sender\"", "role = \"both\"");
    assert!(errors(&both)[0].contains("needs a secret for each direction"));
    let same = both.replace("key-file = \"peer.key\"", "key-file = \"k\"\nanswer-key-file = \"k\"");
    assert!(errors(&same)[0].contains("a secret of its own"));
}

#[test]
fn every_address_of_a_network_and_every_length_of_it_is_taken() {
    for (text, bits) in [("10.1.2.3/32", 32), ("0.0.0.0/0", 0), ("fd00::1/128", 128), ("::/0", 0)] {
        let prefix = Prefix::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(prefix.to_string(), text);
        assert_eq!(prefix.length, bits, "{text}");
    }
}

#[test]
fn a_sender_takes_one_class_to_the_most() {
    let (head, _) = GOOD.split_once("[[classes]]").expect("classes");
    assert!(errors(head)[0].contains("classes: is missing"), "{:#?}", errors(head));
    let class = |i: usize| {
        format!(
            "[[classes]]\nname = \"c{i}\"\npriority = {i}\nneed = \"1kbit\"\n[[classes.match]]\ndscp = [1]\n"
        )
    };
    let with = |count: usize| head.to_owned() + &(1..=count).map(class).collect::<String>();
    assert_eq!(errors(&with(MOST_CLASSES)), [] as [String; 0]);
    assert!(errors(&with(MOST_CLASSES + 1))[0].contains("classes; write 1 to"));
}

#[test]
fn a_receiver_takes_no_classes() {
    let receiver = GOOD.replace("role = \"sender\"", "role = \"receiver\"");
    assert!(errors(&receiver).iter().any(|e| e.contains("classes: goes with role = \"sender\"")));
}
