// scenarios/bench/bulk.toml for 5 s: 16 flows of htsim's TCP over a dumbbell.
#include "bench.h"

using namespace bench;

int
main()
{
    Packet::set_packet_size(Dumbbell::FRAME);
    Dumbbell net(833);
    Draw draw(1);
    TcpRtxTimerScanner timers(10 * MS, EventList::getTheEventList());
    for (int i = 0; i < 16; ++i)
    {
        connection(timers,
                   {net.in[i], net.bottleneck, net.out[i]},
                   {net.back_in[i], net.back, net.back_out[i]},
                   draw.below(15 * MS));
    }
    run(5 * S);
}
