//! Scratch.
use bandmaster_core::params::Limit;
use bandmaster_core::qdisc::fifo;
use bandmaster_core::scenario::*;
use bandmaster_core::time::*;
use bandmaster_core::topology::*;
use bandmaster_core::units::*;
use bandmaster_core::id::NodeId;
use bandmaster_sim::*;

fn link(a: u32, b: u32, rate: u64, delay: SpanDraw, q: u32) -> Link {
    Link { a: NodeId(a), b: NodeId(b), rate: Rate::from_bits_per_sec(rate), delay, queue: fifo::config(Limit::Packets(q)), host_queue: fifo::config(Limit::Unlimited), loss: 0.0, drop_packets: vec![] }
}
fn ns3_tcp() -> TcpSettings {
    TcpSettings { congestion_control: "newreno".into(), delayed_ack_timeout: Span::from_millis(200), min_rto: Span::from_secs(1), rto_floor: RtoFloor::Rto, byte_counting: false, cwnd_validation: false, receive_buffer: Bytes::new(4<<20), initial_rto: Span::from_secs(3), hystart: false, ..TcpSettings::default() }
}
fn flow(name: &str, from: &str, to: &str, t: Transport, start: SpanDraw, stop: Option<u64>) -> FlowGroup {
    let measured = matches!(t, Transport::Tcp{..});
    FlowGroup { name: name.into(), from: from.split(',').map(Into::into).collect(), to: vec![to.into()], pairing: Pairing::OneToOne, count: 1, start, stop: stop.map(|s| Time::ZERO + Span::from_secs(s)), timeline: vec![], on_off: None, transport: t, measured }
}
fn base(topology: Topology, flows: Vec<FlowGroup>, secs: u64, queue: Option<&str>) -> Scenario {
    Scenario { name: "x".into(), run: RunPlan { duration: Span::from_secs(secs), warm_up: Span::from_secs(if secs > 10 {5} else {0}), sample: Span::from_millis(100), trials: 1, seed: 1 }, topology, flows, schemes: vec![], control: ControlPlane { delay: Span::from_millis(1), loss: 0.0 }, measure: Measure { queue: queue.map(Into::into), record: RecordDetail::None, windows: vec![], long_interval: Span::from_secs(1) } }
}
fn dumbbell(n: u32, bq: u32) -> Topology {
    let mut nodes = vec![Node{name:"r1".into(),kind:NodeKind::Router},Node{name:"r2".into(),kind:NodeKind::Router}];
    let ms = |m| SpanDraw::fixed(Span::from_millis(m));
    let mut links = vec![link(0,1,1_000_000_000,ms(3),bq)];
    let mut l = vec![]; let mut r = vec![];
    for i in 0..n { nodes.push(Node{name:format!("left.{i}"),kind:NodeKind::Host}); l.push(NodeId(nodes.len() as u32-1)); links.push(link(nodes.len() as u32-1,0,10_000_000_000,ms(1),100000)); }
    for i in 0..n { nodes.push(Node{name:format!("right.{i}"),kind:NodeKind::Host}); r.push(NodeId(nodes.len() as u32-1)); links.push(link(nodes.len() as u32-1,1,10_000_000_000,ms(1),100000)); }
    Topology { nodes, links, groups: vec![Group{name:"left".into(),members:l},Group{name:"right".into(),members:r}], frame_overhead: Bytes::new(2), host_delay: 0.0, rate_tolerance: 0.0 }
}
fn bas(n: u32) -> Scenario {
    let names = ["server","r1","r2","r3","r4","r5","r6"];
    let mut nodes: Vec<Node> = names.iter().enumerate().map(|(i,n)| Node{name:n.to_string(),kind: if i==0 {NodeKind::Host} else {NodeKind::Router}}).collect();
    let ms = |m| SpanDraw::fixed(Span::from_millis(m));
    let r = 100_000_000;
    let mut links = vec![link(0,1,r,ms(1),200),link(1,2,r,ms(1),200),link(1,3,r,ms(1),200),link(2,4,r,ms(1),200),link(2,5,r,ms(1),200),link(3,6,r,ms(1),200)];
    let mut groups = vec![];
    let mut add = |name: &str, at: u32, count: u32, lo: u64, hi: u64| { let mut m = vec![]; for i in 0..count { nodes.push(Node{name:format!("{name}.{i}"),kind:NodeKind::Host}); let id = nodes.len() as u32 - 1; m.push(NodeId(id)); links.push(link(id, at, r, SpanDraw::Uniform{low:Span::from_millis(lo),high:Span::from_millis(hi)}, 200)); } groups.push(Group{name:name.into(),members:m}); };
    add("a1",4,n/4,2,6); add("a2",5,n/4,2,6); add("b",6,n/2,10,16); add("us",5,1,2,6); add("ur",4,1,2,6);
    let t = Topology { nodes, links, groups, frame_overhead: Bytes::new(2), host_delay: std::env::var("HD").map(|s|s.parse().unwrap()).unwrap_or(1.0), rate_tolerance: std::env::var("PPM").map(|s|s.parse::<f64>().unwrap()*1e-6).unwrap_or(1e-4) };
    let z = SpanDraw::fixed(Span::ZERO);
    base(t, vec![flow("up","a1,a2,b","server",Transport::Tcp{size:None,settings:ns3_tcp()},z,None), flow("udp","us","ur",Transport::Udp{rate:Rate::from_bits_per_sec(85_000_000),packet:Bytes::new(1500)},SpanDraw::fixed(Span::from_secs(10)),Some(15))], 20, Some("r1->server"))
}
fn main() {
    let arg: Vec<String> = std::env::args().collect();
    let n: u32 = arg.get(2).and_then(|s| s.parse().ok()).unwrap_or(16);
    let trials: u32 = arg.get(3).and_then(|s| s.parse().ok()).unwrap_or(1);
    let z = SpanDraw::fixed(Span::ZERO);
    let s = match arg[1].as_str() {
        "cbr" => base(dumbbell(n,100000), vec![flow("u","left","right",Transport::Udp{rate:Rate::from_bits_per_sec((0.95e9/n as f64*1500.0/1502.0) as u64),packet:Bytes::new(1500)},z,Some(5))],6,None),
        "bulk" => base(dumbbell(n,833), vec![flow("u","left","right",Transport::Tcp{size:None,settings:ns3_tcp()},SpanDraw::Uniform{low:Span::ZERO,high:Span::from_millis(16)},None)],20,None),
        _ => bas(n),
    };
    let mut rows = vec![];
    let (mut hops, mut ev) = (0,0);
    let t0 = std::time::Instant::now();
    for t in 0..trials {
        let r = run(&s, 0, t, &mut RunOptions::default()).unwrap();
        hops += r.work.packet_hops; ev += r.work.events;
        rows.push(r);
    }
    let dt = t0.elapsed().as_secs_f64();
    println!("{} hops {} events {:.3} s  {:.2} M hops/s", hops, ev, dt, hops as f64/dt/1e6);
    for name in rows[0].figures.iter().map(|f| f.0.clone()) {
        let mut v: Vec<f64> = rows.iter().map(|r| r.figure(&name).unwrap()).collect();
        v.sort_by(f64::total_cmp);
        let m = v.iter().sum::<f64>()/v.len() as f64;
        println!("{name:24} mean {m:.4} median {:.4} q1 {:.4} q3 {:.4}", v[v.len()/2], v[v.len()/4], v[v.len()*3/4]);
    }
}
