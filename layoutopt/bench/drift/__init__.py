"""A table whose queries change over sixty days, simulated: when is it worth to write partitions anew?"""
