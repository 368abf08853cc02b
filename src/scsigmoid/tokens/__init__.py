"""From counts to gene tokens: gene statistics, vocabulary, ranks, and the token store."""
