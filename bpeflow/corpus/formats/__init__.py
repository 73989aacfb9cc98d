"""Input formats: text, JSON Lines, Parquet, compression, streams, standard input, iterables."""
