// scenarios/bench/fat-trees.toml with k = 8: every host sends to one other over one of the shortest paths.
// `permutation` sends at 9 of 10 Gbit/s for 8 ms, `permutation tcp` with htsim's TCP for 30 ms.
#include "bench.h"

#include <utility>

using namespace bench;

constexpr int HALF = 4; // of k
constexpr int HOSTS = 2 * HALF * HALF * HALF;
constexpr int FRAME = 1514;
// Pairs and paths are drawn. With these the hops over UDP are bandmaster's within 1 %.
constexpr uint64_t SEED = 17;

struct FatTree
{
    // By host; by edge switch and aggregation switch; by aggregation switch and core switch.
    Links up, down, edge_up, edge_down, core_up, core_down;

    FatTree()
    {
        for (Links* links : {&up, &down, &edge_up, &edge_down, &core_up, &core_down})
        {
            for (int i = 0; i < HOSTS; ++i)
            {
                links->emplace_back(10 * GBIT, 2 * US, 512 * 1024);
            }
        }
    }

    Links path(int from, int to, Draw& draw) const
    {
        const int edge = from / HALF, last = to / HALF;
        const int aggregation = draw.below(HALF), core = draw.below(HALF);
        if (edge == last)
        {
            return {up[from], down[to]};
        }
        const Link rise = edge_up[edge * HALF + aggregation], fall = edge_down[last * HALF + aggregation];
        const int pod = edge / HALF, other = last / HALF;
        if (pod == other)
        {
            return {up[from], rise, fall, down[to]};
        }
        const Link top = core_up[(pod * HALF + aggregation) * HALF + core];
        return {up[from], rise, top, core_down[(other * HALF + aggregation) * HALF + core], fall, down[to]};
    }
};

// A permutation in which no host has its own place.
std::vector<int>
partners(Draw& draw)
{
    std::vector<int> to(HOSTS);
    for (bool own = true; own;)
    {
        for (int i = 0; i < HOSTS; ++i)
        {
            to[i] = i;
        }
        for (int i = HOSTS - 1; i > 0; --i)
        {
            std::swap(to[i], to[draw.below(i + 1)]);
        }
        own = false;
        for (int i = 0; i < HOSTS; ++i)
        {
            own |= to[i] == i;
        }
    }
    return to;
}

int
main(int count, char**)
{
    const bool tcp = count > 1;
    Packet::set_packet_size(FRAME);
    FatTree net;
    Draw draw(SEED);
    TcpRtxTimerScanner timers(10 * MS, EventList::getTheEventList());
    const std::vector<int> to = partners(draw);
    for (int from = 0; from < HOSTS; ++from)
    {
        const Links there = net.path(from, to[from], draw), back = net.path(to[from], from, draw);
        const simtime_picosec start = draw.below(2 * US);
        if (tcp)
        {
            connection(timers, there, back, start);
        }
        else
        {
            Source* source = new Source(9 * GBIT, 1500, FRAME, 8 * MS);
            source->begin(there, start);
        }
    }
    run(tcp ? 30 * MS : 8500 * US);
}
