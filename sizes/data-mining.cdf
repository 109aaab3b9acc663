# Flow sizes of a cluster for data mining: Greenberg et al., VL2, SIGCOMM 2009, Fig. 2 (flow size distribution), at the
# points that simulations of it use, in packets of 1460 bytes there.
# size, share of flows up to it
1460B 0.50
2920B 0.60
4380B 0.70
10220B 0.80
389820B 0.90
3076220B 0.95
97333820B 0.99
973333820B 1
