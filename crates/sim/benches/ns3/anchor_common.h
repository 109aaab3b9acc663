// Shared helpers of the ns-3 programs that the bench compares with; needs ns-3.37 only.
#pragma once
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace anchor
{
using namespace ns3;

// ---------------------------------------------------------------- options common to every scenario
struct TcpOpts
{
    std::string tcp = "ns3::TcpNewReno";
    std::string recovery = "ns3::TcpPrrRecovery"; // ns-3.37's default
    std::string scheduler = "ns3::MapScheduler";  // ns-3.37's default
    uint32_t mss = 1448;
    bool sack = true;
    bool timestamp = true;
    uint32_t delack = 2;
    double delackMs = 200; // ns-3.37's default
    double minRtoMs = 1000; // ns-3.37's default
    double connTimeoutMs = 3000;
    uint32_t iw = 10;
    uint32_t sockbuf = 4u << 20; // ns-3.37's default is 131072
    uint32_t sendSize = 0;       // 0: one MSS per write; BulkSendApplication's default is 512
    uint32_t seed = 1;

    void Add(CommandLine& c)
    {
        c.AddValue("tcp", "congestion control TypeId", tcp);
        c.AddValue("recovery", "recovery TypeId", recovery);
        c.AddValue("scheduler", "event scheduler TypeId", scheduler);
        c.AddValue("mss", "segment size", mss);
        c.AddValue("sack", "SACK on", sack);
        c.AddValue("timestamp", "TCP timestamps on", timestamp);
        c.AddValue("delack", "packets per ack", delack);
        c.AddValue("delackms", "delayed-ack timeout, ms", delackMs);
        c.AddValue("minrto", "minimum RTO, ms", minRtoMs);
        c.AddValue("conntimeout", "SYN timeout, ms", connTimeoutMs);
        c.AddValue("iw", "initial cwnd, segments", iw);
        c.AddValue("sockbuf", "socket send and receive buffer, bytes", sockbuf);
        c.AddValue("sendsize", "application write size, bytes (0: MSS)", sendSize);
        c.AddValue("seed", "RNG run number", seed);
    }

    void Apply()
    {
        if (sendSize == 0)
        {
            sendSize = mss;
        }
        RngSeedManager::SetSeed(12345);
        RngSeedManager::SetRun(seed);
        GlobalValue::Bind("SchedulerType", StringValue(scheduler));
        Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName(tcp)));
        Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                           TypeIdValue(TypeId::LookupByName(recovery)));
        Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(mss));
        Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(delack));
        Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(delackMs * 1e3)));
        Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(iw));
        Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(sockbuf));
        Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(sockbuf));
        Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(MicroSeconds(connTimeoutMs * 1e3)));
        Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MicroSeconds(minRtoMs * 1e3)));
        Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
        Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(timestamp));
    }
};

// ---------------------------------------------------------------- links
struct Net
{
    Ipv4AddressHelper addr;
    uint32_t nextNet = 0;
    bool keepQdisc = false; // true: leave the FqCoDel queue disc that ns-3.37 puts on every device
    // Each transmitter's rate is off by U(-ppm, ppm) parts per million (Ethernet allows 100). With 0 every link has
    // exactly the same rate and drop-tail phase effects can shut a whole group out.
    double ppm = 0;
    Ptr<UniformRandomVariable> ppmVar;

    // One duplex link; qa / qb: size of the drop-tail device queue at a's / b's end.
    NetDeviceContainer Link(Ptr<Node> a,
                            Ptr<Node> b,
                            DataRate rate,
                            Time delay,
                            const std::string& qa,
                            const std::string& qb,
                            Ipv4InterfaceContainer* ifs = nullptr,
                            bool wantQdisc = false)
    {
        PointToPointHelper p2p;
        // Without flow control ns-3 installs no queue disc, and a full device queue counts its own drops.
        // (TrafficControlHelper::Uninstall instead leaves the device queue "stopped" when full: the traffic
        // control layer then discards packets that neither the queue nor a disc counts.)
        if (!keepQdisc && !wantQdisc)
        {
            p2p.DisableFlowControl();
        }
        p2p.SetDeviceAttribute("DataRate", DataRateValue(rate));
        p2p.SetChannelAttribute("Delay", TimeValue(delay));
        NetDeviceContainer d = p2p.Install(a, b);
        SetQueue(d.Get(0), qa);
        SetQueue(d.Get(1), qb);
        if (ppm > 0)
        {
            if (!ppmVar)
            {
                ppmVar = CreateObject<UniformRandomVariable>();
                ppmVar->SetStream(2);
            }
            for (uint32_t j = 0; j < 2; ++j)
            {
                double r = rate.GetBitRate() * (1 + 1e-6 * ppmVar->GetValue(-ppm, ppm));
                d.Get(j)->SetAttribute("DataRate", DataRateValue(DataRate(uint64_t(r))));
            }
        }
        // 10.x.y.z/30, one subnet per link
        uint32_t base = (10u << 24) + (nextNet++ << 2);
        addr.SetBase(Ipv4Address(base), "255.255.255.252");
        Ipv4InterfaceContainer i = addr.Assign(d); // an FqCoDel disc appears here if flow control is on
        if (ifs)
        {
            *ifs = i;
        }
        return d;
    }

    static void SetQueue(Ptr<NetDevice> dev, const std::string& size)
    {
        Ptr<PointToPointNetDevice> p = DynamicCast<PointToPointNetDevice>(dev);
        p->GetQueue()->SetAttribute("MaxSize", QueueSizeValue(QueueSize(size)));
    }
};

// ---------------------------------------------------------------- counters read after the run
struct Counters
{
    uint64_t hops = 0;       // packets handed to a link transmitter
    uint64_t hopBytes = 0;   // the same in bytes (device queue bytes: IP packet + 2 B PPP)
    uint64_t devDrops = 0;   // drops at device queues
    uint64_t qdiscDrops = 0; // drops at queue discs
};

inline Counters
Count()
{
    Counters c;
    for (uint32_t n = 0; n < NodeList::GetNNodes(); ++n)
    {
        Ptr<Node> node = NodeList::GetNode(n);
        Ptr<TrafficControlLayer> tc = node->GetObject<TrafficControlLayer>();
        for (uint32_t i = 0; i < node->GetNDevices(); ++i)
        {
            Ptr<PointToPointNetDevice> p = DynamicCast<PointToPointNetDevice>(node->GetDevice(i));
            if (!p)
            {
                continue;
            }
            Ptr<Queue<Packet>> q = p->GetQueue();
            // Every transmitted packet passes through the device queue (PointToPointNetDevice::Send).
            c.hops += q->GetTotalReceivedPackets() - q->GetNPackets();
            c.hopBytes += q->GetTotalReceivedBytes() - q->GetNBytes();
            c.devDrops += q->GetTotalDroppedPackets();
            if (tc)
            {
                Ptr<QueueDisc> qd = tc->GetRootQueueDiscOnDevice(p);
                if (qd)
                {
                    c.qdiscDrops += qd->GetStats().nTotalDroppedPackets;
                }
            }
        }
    }
    return c;
}

// ---------------------------------------------------------------- TCP senders
struct SenderStats
{
    uint64_t timeouts = 0;     // RTO expiries (each one doubles the RTO)
    uint64_t lossEpisodes = 0; // entries into CA_LOSS
    uint64_t recoveries = 0;   // entries into CA_RECOVERY
};

inline void
OnRto(SenderStats* s, Time oldv, Time newv)
{
    if (newv == oldv + oldv)
    {
        s->timeouts++;
    }
}

inline void
OnState(SenderStats* s, TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t n)
{
    if (n == TcpSocketState::CA_LOSS)
    {
        s->lossEpisodes++;
    }
    if (n == TcpSocketState::CA_RECOVERY)
    {
        s->recoveries++;
    }
}

inline void
HookSender(Ptr<BulkSendApplication> app, SenderStats* s)
{
    Ptr<Socket> k = app->GetSocket();
    if (k)
    {
        k->TraceConnectWithoutContext("RTO", MakeBoundCallback(&OnRto, s));
        k->TraceConnectWithoutContext("CongState", MakeBoundCallback(&OnState, s));
    }
}

struct Flow
{
    Ptr<BulkSendApplication> send;
    Ptr<PacketSink> sink;
    uint64_t arrived = 0; // TCP payload bytes that reached the receiver, in order or not
    uint64_t lastApp = 0;
    uint64_t lastArr = 0;
    uint64_t appBytes = 0; // in the measured window
    uint64_t arrBytes = 0;
    Time done;
};

inline std::unique_ptr<Flow>
MakeFlow(Ptr<Node> from,
         Ptr<Node> to,
         Ipv4Address toAddr,
         uint16_t port,
         Time start,
         uint64_t maxBytes,
         uint32_t sendSize,
         SenderStats* st)
{
    auto f = std::make_unique<Flow>();
    InetSocketAddress dst(toAddr, port);
    PacketSinkHelper sh("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer sa = sh.Install(to);
    sa.Start(Seconds(0));
    f->sink = DynamicCast<PacketSink>(sa.Get(0));
    BulkSendHelper bh("ns3::TcpSocketFactory", dst);
    bh.SetAttribute("MaxBytes", UintegerValue(maxBytes));
    bh.SetAttribute("SendSize", UintegerValue(sendSize));
    ApplicationContainer ba = bh.Install(from);
    ba.Start(start);
    f->send = DynamicCast<BulkSendApplication>(ba.Get(0));
    Simulator::Schedule(start + NanoSeconds(1), &HookSender, f->send, st);
    return f;
}

inline void
OnArrive(Flow* f, Ptr<const Packet> p, const TcpHeader&, Ptr<const TcpSocketBase>)
{
    f->arrived += p->GetSize();
}

inline void
HookArrivals(Flow* f)
{
    for (auto& s : f->sink->GetAcceptedSockets())
    {
        s->TraceConnectWithoutContext("Rx", MakeBoundCallback(&OnArrive, f));
    }
}

inline double
Jain(const std::vector<double>& x)
{
    double s = 0;
    double q = 0;
    for (double v : x)
    {
        s += v;
        q += v * v;
    }
    return q > 0 ? s * s / (x.size() * q) : NAN;
}

// ---------------------------------------------------------------- wall clock and the result line
struct Wall
{
    using C = std::chrono::steady_clock;
    C::time_point t0 = C::now();
    double setup = 0;
    double run = 0;

    void Run()
    {
        auto a = C::now();
        setup = std::chrono::duration<double>(a - t0).count();
        Simulator::Run();
        run = std::chrono::duration<double>(C::now() - a).count();
    }

    void Print(const std::string& head, const SenderStats& s) const
    {
        Counters c = Count();
        std::string h = head; // JSON has no NaN
        for (size_t i; (i = h.find("-nan")) != std::string::npos;)
        {
            h.replace(i, 4, "null");
        }
        for (size_t i; (i = h.find("nan")) != std::string::npos;)
        {
            h.replace(i, 3, "null");
        }
        uint64_t ev = Simulator::GetEventCount();
        std::printf("{%s, \"events\": %llu, \"hops\": %llu, \"hop_bytes\": %llu, \"dev_drops\": %llu, "
                    "\"qdisc_drops\": %llu, \"rto\": %llu, \"loss_episodes\": %llu, \"fast_rec\": %llu, "
                    "\"setup_s\": %.4f, \"run_s\": %.4f, \"hops_per_s\": %.0f, \"events_per_s\": %.0f}\n",
                    h.c_str(),
                    (unsigned long long)ev,
                    (unsigned long long)c.hops,
                    (unsigned long long)c.hopBytes,
                    (unsigned long long)c.devDrops,
                    (unsigned long long)c.qdiscDrops,
                    (unsigned long long)s.timeouts,
                    (unsigned long long)s.lossEpisodes,
                    (unsigned long long)s.recoveries,
                    setup,
                    run,
                    c.hops / run,
                    ev / run);
    }
};

inline std::string
Fmt(const char* f, ...) __attribute__((format(printf, 1, 2)));

inline std::string
Fmt(const char* f, ...)
{
    char b[4096];
    va_list ap;
    va_start(ap, f);
    vsnprintf(b, sizeof b, f, ap);
    va_end(ap);
    return b;
}
} // namespace anchor
