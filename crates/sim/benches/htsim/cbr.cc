// scenarios/bench/cbr.toml: 16 constant-rate flows over a dumbbell, 24,706 packets each, three hops.
#include "bench.h"

using namespace bench;

int
main()
{
    Dumbbell net(100'000);
    Draw draw(1);
    for (int i = 0; i < 16; ++i)
    {
        Source* source = new Source(59'295'942, 1500, Dumbbell::FRAME, 5 * S);
        source->begin({net.in[i], net.bottleneck, net.out[i]}, draw.below(15 * US));
    }
    run(5100 * MS);
}
