"""The corpus: finding its files, dividing them into chunks, and decoding chunks into texts."""
