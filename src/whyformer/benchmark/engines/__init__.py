"""Engines that compute the shards of a suite: in this process, or on a Ray cluster."""
