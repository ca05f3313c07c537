"""A plan shared by many pairs, on dask.distributed."""
