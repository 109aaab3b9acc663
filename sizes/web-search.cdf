# Flow sizes of a web search cluster: Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010, Fig. 4 (flow sizes),
# at the points that simulations of it use.
# size, share of flows up to it
1B 0
10kB 0.15
20kB 0.20
30kB 0.30
50kB 0.40
80kB 0.53
200kB 0.60
1MB 0.70
2MB 0.80
5MB 0.90
10MB 0.97
30MB 1
