"""Layout methods: each turns planning data into a layout proposal."""
