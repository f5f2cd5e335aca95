"""One type of index a module, by one protocol: what is measured of a block, and what that proves."""
