"""Where the shards of a suite are computed: in this process, or on a Ray cluster."""
