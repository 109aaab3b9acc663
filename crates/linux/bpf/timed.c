// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The programs of windows.c, which measure the round-trip times of flows too. The short ones stay without the clock and the row
// more that this takes for each packet.
#define TIMED
#include "windows.c"
