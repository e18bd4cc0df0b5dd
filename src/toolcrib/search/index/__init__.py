"""The search index: tools become terms, terms become postings, and a query becomes a ranking.

All are immutable values."""
