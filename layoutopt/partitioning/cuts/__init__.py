"""Blocking by cuts: a tree over values of columns and features' bits, fitted to the ranges that queries ask for."""
