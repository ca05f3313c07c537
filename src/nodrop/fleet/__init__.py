"""A plan shared by many pairs, on dask.distributed. Only `--fleet` imports what is in here."""
