// What the htsim programs that the bench compares with share: links that count, sources that stop, connections.
#pragma once
#include "cbr.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "tcp.h"

#include <cstdio>
#include <iostream>
#include <random>
#include <vector>

namespace bench
{
inline uint64_t hops = 0;

constexpr simtime_picosec US = 1'000'000;
constexpr simtime_picosec MS = 1000 * US;
constexpr simtime_picosec S = 1000 * MS;
constexpr linkspeed_bps GBIT = 1'000'000'000;

// A transmitter and its drop-tail queue. A hop is a packet that it begins to send.
struct Port : Queue
{
    using Queue::Queue;

  protected:
    void beginService() override
    {
        ++hops;
        Queue::beginService();
    }
};

// One direction of a link.
struct Link
{
    Port* port;
    Pipe* pipe;

    Link(linkspeed_bps rate, simtime_picosec delay, mem_b queue)
        : port(new Port(rate, queue, EventList::getTheEventList(), nullptr)),
          pipe(new Pipe(delay, EventList::getTheEventList()))
    {
    }
};

using Links = std::vector<Link>;

inline Route* route(const Links& links, PacketSink* end)
{
    Route* route = new Route();
    for (const Link& link : links)
    {
        route->push_back(link.port);
        route->push_back(link.pipe);
    }
    route->push_back(end);
    return route;
}

// Sends a packet in each period after `start`, at its end, until `stop`.
struct Source : CbrSrc
{
    simtime_picosec stop;

    Source(linkspeed_bps rate, int packet, int frame, simtime_picosec stop)
        : CbrSrc(EventList::getTheEventList(), rate), stop(stop)
    {
        _mss = frame;
        _period = simtime_picosec(packet * 8e12 / rate);
    }

    void begin(const Links& links, simtime_picosec start)
    {
        CbrSink* sink = new CbrSink();
        connect(*route(links, sink), *sink, start + _period);
    }

    void doNextEvent() override
    {
        if (EventList::now() < stop)
        {
            CbrSrc::doNextEvent();
        }
    }
};

// A connection with htsim's TCP, for as long as the run takes.
inline void connection(TcpRtxTimerScanner& timers, const Links& there, const Links& back, simtime_picosec start)
{
    TcpSrc* source = new TcpSrc(nullptr, nullptr, EventList::getTheEventList());
    TcpSink* sink = new TcpSink();
    source->connect(*route(there, sink), *route(back, source), *sink, start);
    timers.registerTcp(*source);
}

// The same numbers everywhere.
struct Draw
{
    std::mt19937_64 bits;

    explicit Draw(uint64_t seed) : bits(seed) {}

    uint64_t below(uint64_t end) { return bits() % end; }
};

// htsim tells of timeouts on the standard output.
inline void run(simtime_picosec end)
{
    std::cout.setstate(std::ios::failbit);
    EventList::setEndtime(end);
    while (EventList::doNextEvent())
    {
    }
    std::printf("{\"hops\": %llu}\n", (unsigned long long)hops);
}

// Both directions of 16 hosts on each side of a bottleneck of 1 Gbit/s, as in scenarios/bench/cbr.toml and bulk.toml.
struct Dumbbell
{
    static constexpr int FRAME = 1502;
    static constexpr mem_b LARGE = 100'000 * FRAME;
    Links in, out, back_in, back_out;
    Link bottleneck, back;

    explicit Dumbbell(int packets)
        : bottleneck(GBIT, 3 * MS, mem_b(packets) * FRAME), back(GBIT, 3 * MS, mem_b(packets) * FRAME)
    {
        for (Links* links : {&in, &out, &back_in, &back_out})
        {
            for (int host = 0; host < 16; ++host)
            {
                links->emplace_back(10 * GBIT, 1 * MS, LARGE);
            }
        }
    }
};
} // namespace bench
