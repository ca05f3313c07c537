"""The published data of 2016 and 2017: read, tables made again, claims held against runs."""
