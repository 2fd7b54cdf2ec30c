"""The ledger of all results and the pages made from it."""
