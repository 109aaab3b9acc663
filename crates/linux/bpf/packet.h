// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Packets of IP, as programs at network devices (tcx) see them.
#pragma once

#include "kernel.h"

enum { NEXT = -1 };               // TCX_NEXT
enum { IPV4 = 4, IPV6 = 6, TCP = 6, UDP = 17 };
enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd };
enum { UDP_HEADER = 8, MOST_EXTENSIONS = 4 };

struct packet {
    u32 source[4], destination[4];
    u32 bytes;
    u32 header;    // of IP
    u32 transport; // header of TCP or UDP
    u16 ports[2];
    u8 family, protocol, code_point, has_ports;
};

INLINE int parse(struct __sk_buff *skb, struct packet *packet) {
    u8 header[40];
    u32 at;
    int fragment = 0;
    if (skb->protocol == AS_NETWORK(ETHERTYPE_IPV4)) {
        if (skb_load(skb, 0, header, 20, FROM_NETWORK_HEADER)) return 0;
        packet->family = IPV4;
        packet->bytes = header[2] << 8 | header[3];
        packet->code_point = header[1] >> 2;
        packet->protocol = header[9];
        fragment = (header[6] & 0x1f) | header[7];
        __builtin_memcpy(packet->source, header + 12, 4);
        __builtin_memcpy(packet->destination, header + 16, 4);
        at = (header[0] & 15) * 4;
    } else if (skb->protocol == AS_NETWORK(ETHERTYPE_IPV6)) {
        if (skb_load(skb, 0, header, 40, FROM_NETWORK_HEADER)) return 0;
        packet->family = IPV6;
        packet->bytes = (header[4] << 8 | header[5]) + 40;
        packet->code_point = (header[0] & 15) << 2 | header[1] >> 6;
        packet->protocol = header[6];
        __builtin_memcpy(packet->source, header + 8, 16);
        __builtin_memcpy(packet->destination, header + 24, 16);
        at = 40;
        for (int i = 0; i < MOST_EXTENSIONS; i++) {
            u8 next = packet->protocol; // hop-by-hop, routing, fragment, destination options
            if (next != 0 && next != 43 && next != 44 && next != 60) break;
            u8 extension[4];
            if (skb_load(skb, at, extension, 4, FROM_NETWORK_HEADER)) return 0;
            if (next == 44) fragment = extension[2] | (extension[3] & 0xf8);
            packet->protocol = extension[0];
            at += next == 44 ? 8 : (extension[1] + 1) * 8;
        }
    } else {
        return 0;
    }
    packet->header = at;
    if (fragment || (packet->protocol != TCP && packet->protocol != UDP)) return 1;
    u8 offset = 0;
    packet->has_ports = !skb_load(skb, at, packet->ports, 4, FROM_NETWORK_HEADER);
    packet->transport = UDP_HEADER;
    if (packet->protocol == TCP && !skb_load(skb, at + 12, &offset, 1, FROM_NETWORK_HEADER))
        packet->transport = (offset >> 4) * 4;
    return 1;
}
