# Flow sizes of a Hadoop cluster: Roy et al., Inside the Social Network's (Datacenter) Network, SIGCOMM 2015, Fig. 6 (flow
# sizes, Hadoop), at the points that simulations of it use.
# size, share of flows up to it
1B 0
100B 0.01
200B 0.02
300B 0.05
350B 0.15
400B 0.20
500B 0.30
600B 0.40
700B 0.50
1kB 0.60
2kB 0.67
7kB 0.70
30kB 0.72
50kB 0.82
80kB 0.87
120kB 0.90
300kB 0.95
1MB 0.975
2MB 0.99
10MB 1
