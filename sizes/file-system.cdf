# Sizes of the flows of a distributed file system, from 20 B to 62 GB as Ghobadi, Hassas Yeganeh and Ganjali state
# (HotNets 2012, Sect. 3, Traffic Characterization). How they are spread is not published: this is a Pareto distribution
# with index 0.35, cut at 62 GB. Nine of ten flows are below 17 kB, and the fifth of a per cent above 500 MB makes up 19
# twentieths of the bytes, as file systems have it: most flows are requests and small files, most bytes are in few large ones.
# size, share of flows up to it
20B 0
50B 0.2744911
100B 0.43088
200B 0.5535802
500B 0.6761909
1kB 0.7460472
2kB 0.8008553
5kB 0.8556235
10kB 0.8868272
20kB 0.9113091
50kB 0.9357732
100kB 0.9497113
200kB 0.960647
500kB 0.9715747
1MB 0.9778006
2MB 0.9826854
5MB 0.9875666
10MB 0.9903477
20MB 0.9925296
50MB 0.99471
100MB 0.9959522
200MB 0.9969269
500MB 0.9979008
1GB 0.9984557
2GB 0.998891
5GB 0.9993261
10GB 0.9995739
20GB 0.9997684
50GB 0.9999627
62GB 1
