"""From tools to a ranking: texts become terms, terms become postings, a query becomes scores; values in, values out."""
